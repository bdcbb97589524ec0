# h.0 reaches the sum by itself. h.2 reads it only after a repair, and goes wrong as well: it comes after h.0, which is first.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
cat > places <<'PLACES'
x !entry
h.0: x
repair: h.0
h.2: repair
loss: h.0 h.2
PLACES
names h.0 h.2 loss > bad
search | grep -v '^ *[0-9]'
search --json | grep -A 2 '"later"'
