. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan-halt
write_locate r1
test "$(firstbad why | wc -l)" -le 40
test "$(firstbad why | awk '{ if (length($0) > 100) print }' | wc -l)" = 0
