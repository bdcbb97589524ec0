# A chain of eight; from h.4 on everything is bad. Halving needs three looks, then the witness is looked at again.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 h.2 h.3 h.4 h.5 h.6 loss > places
names h.4 h.5 h.6 loss > bad
search
echo "--- every place"
search --strategy sweep | tail -6
echo "--- numbered"
firstbad bisect --count 300 -- bash -c '[ "$FIRSTBAD_BOUNDARY" -lt 299 ]' 2>/dev/null || echo "exit $?"
echo "--- a list out of an editor that marks UTF-8 and ends lines with CR LF"
printf '\357\273\277h.0\r\nh.1\r\nloss' > places
names h.0 h.1 loss > bad
search | tail -5
