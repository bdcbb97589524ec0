# What h.1 made was swallowed by h.2; h.4 then made another. A halving that trusts "bad stays bad" would name h.1.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 h.2 h.3 h.4 loss > places
names h.1 h.4 loss > bad
search 2>&1
echo "--- every place"
search --strategy sweep | grep -v '^ *[0-9]'
