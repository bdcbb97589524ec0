# The first 20 of a kind, and how many more; --all has them all, and so has a program.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
PYTHONPATH=$FIRSTBAD_SOURCE/tests/cli/scan python3 -B -c '
from _make import make
make("many.safetensors", {f"h.{i:02}.w": ("BF16", [2, 2], b"\x00\x00\x80\x7f" * 2) for i in range(25)})'
code=0
firstbad scan many.safetensors >out || code=$?
echo "exit $code"
tail -n 4 out
grep -c "^NON-FINITE" out
firstbad scan --all many.safetensors >out || test $? = 1
grep -c "^NON-FINITE" out
firstbad scan --json many.safetensors | json_get '[len(d["findings"]), d["left_out"]["findings"], d["bad"]]'
