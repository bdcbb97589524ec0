# The same facts for programs, and nothing on standard error.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names 'w !state' h.0 h.1 h.2 loss > places
names h.0 h.2 loss > bad
search --json --strategy sweep
