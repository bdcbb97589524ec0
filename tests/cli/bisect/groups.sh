# Several places in one run: fewer runs, the same answer. 125 of a group is taken apart.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
cat > places <<'PLACES'
w.0 !state
w.1 !state !good
x !entry
a: x w.0
b: x w.1
c: a b
d: c w.0
loss: d b
PLACES
names c d loss > bad
search --groups
echo "--- two a run"
search --groups --probes 2 | grep -v '^ *[0-9]'
echo "--- b cannot be looked at"
names b > hidden
search --groups | grep -v '^ *[0-9]'
echo "--- said beforehand"
sed -i 's/^b:.*/& !untestable/' places
: > hidden
search --groups | grep -v '^ *[0-9]'
echo "--- more names than a variable holds"
firstbad bisect --count 200000 --groups --strategy sweep -- false 2>&1 | tail -1
