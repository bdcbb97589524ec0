# Three of three; what the trainer was asked; a second replay goes into a folder of its own.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_case c 1 412 ./trainer --steps 500 'a word'
export FIRSTBAD_DIR=outer FIRSTBAD_RUN_ID=outer FIRSTBAD_INJECT=outer FIRSTBAD_KERNEL=ref FIRSTBAD_REPLAY_TIMES=7
echo "read by the trainer" | replay c
here < c/replays/001/output.log
echo "--- the smallest batch, five times, from another folder"
(mkdir -p elsewhere && cd elsewhere && replay ../c --times 5 --batch minimal)
here < c/replays/002/output.log
ls c/replays
