. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan-halt
write_locate r1
firstbad why
