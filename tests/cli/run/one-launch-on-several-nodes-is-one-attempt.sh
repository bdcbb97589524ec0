# A launcher that starts firstbad once on each node means one attempt; the next step of the same job is the next attempt.
export SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4
node() { firstbad run -- sh -c 'echo $FIRSTBAD_RUN_ID $FIRSTBAD_ATTEMPT' 2>/dev/null; }
for i in 1 2 3 4; do node >> first & done
wait
sort first | uniq -c | sed 's/^ *//'
SLURM_STEP_ID=1 node
SLURM_RESTART_COUNT=1 node
SLURM_STEP_NUM_TASKS=1 node
ls firstbad-runs/77/ledger | grep -v claim
ls firstbad-runs/77/ledger/a1
