# Each with its sentence and exit code 3: no bundle, a changed one, no command, and trainers that fail.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_run clean clean
make_run r1 grad-nan
replay clean
replay r1
replay r1 --batch minimal
make_case c 1 412 ./trainer
echo "--- changed, cut, missing"
cp -r c d && printf x | dd of=d/bundle/batch-r00000.safetensors bs=1 seek=200 conv=notrunc status=none && replay d
cp -r c e && truncate -s 100 e/bundle/batch-r00000.safetensors && replay e
cp -r c f && rm f/bundle/part-r00000.json && replay f
find d e f -name "*replays*" | wc -l
echo "--- the trainer"
make_case none 1 412
replay none
replay c -- ./not-there
replay c -- bash -c 'echo loading; echo "cannot load: shapes differ" >&2; exit 3'
replay c -- bash -c 'kill -ABRT $$'
replay c -- true
replay c -- bash -c 'echo "{" > "$FIRSTBAD_REPLAY_OUT/locate.json"'
answer 'd["step"] = 7'
replay c
echo "--- a result of something else"
answer 'd["run_id"] = "other"; d["case"] = "a1-000412"'
replay c -- ./trainer | tail -2
answer 'd["case"] = "a1-000411"'
replay c -- ./trainer | tail -2
answer 'd["replay"]["reproduced"] = 30'
replay c -- ./trainer | tail -2
echo "--- the newest run has no case"
make_run r2 clean && replay
