. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan
rm -r firstbad-runs/r1/cases
firstbad why
