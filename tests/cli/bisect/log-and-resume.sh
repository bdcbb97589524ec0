# A search that was stopped goes on where it was; answers that are there are not asked for again.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 h.2 h.3 h.4 loss > places
names h.3 h.4 loss > bad
search --log whole > first
sed 's/0x[0-9a-f]*/HASH/' whole
echo "--- cut after three answers"
head -5 whole > part
search --resume part | tail -1
cmp whole part && echo "the two logs are equal"
echo "--- nothing is written over"
search --log whole
echo "--- of other boundaries"
names h.0 h.2 h.4 loss > places
search --resume part
echo "--- no log"
search --resume places
echo "--- of another command"
firstbad bisect --boundaries places --resume whole -- true 2>&1 | sed 's/0x[0-9a-f]*/HASH/'
