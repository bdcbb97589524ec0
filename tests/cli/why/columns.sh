. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Narrow terminals get narrow lines.
make_run r1 sum-overflow
COLUMNS=60 firstbad why >out || test $? = 1
test "$(awk 'length > 60' out | wc -l)" = 0
