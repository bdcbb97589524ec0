. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 two-ranks
firstbad why
