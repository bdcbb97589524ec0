. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 sum-overflow
firstbad why
