# State that is bad on entry accuses nobody, even where a boundary looks guilty; a bad batch is told apart from it.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names 'weight !state' 'batch !entry' h.0 h.1 loss > places
names weight h.0 h.1 loss > bad
search
names batch h.0 h.1 loss > bad
search | grep -v '^ *[0-9]'
