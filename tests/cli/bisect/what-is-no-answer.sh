# A command that is not found, crashes or gives up must not be taken for one that found a bad number.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 loss > places
ask() { firstbad bisect --boundaries places -- "$@" || echo "exit $?"; }
exec 2>&1
ask bash -c 'echo loading the model; echo "no such file: ckpt" >&2; no-such-program 2>/dev/null'
ask bash -c 'kill -SEGV $$'
ask bash -c 'exit 200'
ask bash -c 'exit 126'
ask ./not-there
echo "--- the budget is spent"
names h.1 loss > bad
firstbad bisect --boundaries places --runs 2 -- ./program 2>/dev/null || echo "exit $?"
