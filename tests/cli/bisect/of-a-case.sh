# The operator, its chain, the cause, the smallest batch; and what the trainer was asked for.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_case c 1 412 ./trainer --steps 5
bisect c --strategy bisect --probes 4
grep -e PARTS -e STRATEGY -e PROBES c/replays/001/output.log
