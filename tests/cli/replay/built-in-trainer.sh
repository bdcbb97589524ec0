# The real thing, on two ranks: a feed-forward layer whose output exceeds FP16. The run goes on; the case is then replayed by processes
# of its own, located by both strategies, made small, moved to another folder, and run by one process alone.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
train() {
    firstbad run --run-id "$1" "${@:2}" -- mpirun -n 2 firstbad-gpt --steps 7 --layers 2 --channels 16 --heads 2 --block 16 --batch 4 \
        --log-every 0 --precision fp16 --loss-scale 256 --fault mlp-fp16@step=5,rank=1
}
train r1 > printed 2>&1 || { cat printed; exit 1; }
test -e firstbad-runs/r1/cases/a1-000005/bundle/bundle.json
# ask COMMAND...: the facts of its JSON, and its exit code.
ask() {
    code=0
    firstbad "$@" --json > said || code=$?
    json_get 'd["status"], d["witnessed"], d["differences"], d["locate"]["replay"]["reproduced"], d["locate"]["replay"]["attempts"]' < said
    echo "exit $code"
}
where() {
    json_get '[d["locate"][k] and d["locate"][k][m] for k, m in (("location", "module"), ("location", "operator"), ("location", "boundary"),
        ("location", "rank"), ("cause", "class"), ("minimise", "rows_needed"), ("cost", "strategy"))]' < said
}
ask replay r1 --times 2
json_get 'd["locate"]["replay"]["faithful"], d["locate"]["replay"]["differences"], d["locate"]["replay"]["persists_fp32"]' < said
ask bisect r1; where
ask bisect r1 --strategy bisect; where
ask replay r1 --batch minimal
echo "--- somewhere else"
cp -r firstbad-runs/r1/cases/a1-000005 elsewhere
ask replay elsewhere --alone
json_get 'd["locate"]["replay"]["differences"]' < said
echo "--- one process says nothing of other machines"
firstbad replay elsewhere --json -- firstbad-gpt --steps 7 --layers 2 --channels 16 --heads 2 --block 16 --batch 4 --log-every 0 \
    --precision fp16 --loss-scale 256 --fault mlp-fp16@step=5,rank=1 > said || echo "exit $?"
json_get 'd["locate"]["replay"]["differences"], d["locate"]["replay"]["other_ranks"]' < said
echo "--- a result that cannot be written is no result"
firstbad replay r1 -- mpirun -n 2 env FIRSTBAD_REPLAY_OUT=/proc/none firstbad-gpt --steps 7 --layers 2 --channels 16 --heads 2 --block 16 \
    --batch 4 --log-every 0 --precision fp16 --loss-scale 256 --fault mlp-fp16@step=5,rank=1 2>&1 | tail -1 | sed 's/;.*//'
