# h.2 and h.3 answer 125: it is one of those that could have made it, and the answer is an interval. Where they do not matter, they
# do not.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 h.2 h.3 h.4 loss > places
names h.4 loss > bad
names h.2 h.3 > hidden
search
echo "--- the same, said beforehand: no run is spent"
names h.0 h.1 'h.2 !untestable' 'h.3 !untestable' h.4 loss > places
: > hidden
search | tail -4
echo "--- they do not matter"
names loss > bad
names h.1 > hidden
names h.0 h.1 h.2 h.3 h.4 loss > places
search | grep -v '^ *[0-9]'
