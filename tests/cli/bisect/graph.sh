# A residual sum: the branch made it, the trunk beside it is finite. And a where, whose unused branch is only read backward.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
cat > places <<'PLACES'
# parameters and batch are there before the program begins
weight !state
batch !entry
embed: batch weight
norm: embed
branch: norm weight
sum: embed branch
loss: sum
PLACES
names branch sum loss > bad
search | grep -v '^ *[0-9]'
cat > places <<'PLACES'
x !entry
unused: x
used: x
where: used unused
loss: where
d_where: loss
d_unused: d_where unused
d_x: d_where d_unused
PLACES
names unused d_unused d_x > bad
search | grep -v '^ *[0-9]'
