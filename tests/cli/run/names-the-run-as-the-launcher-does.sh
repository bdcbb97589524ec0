# The scheduler's id is the run's, so that all nodes agree; torchrun's own default "none" is no name; --run-id wins.
name() { firstbad run "$@" -- sh -c 'echo $FIRSTBAD_RUN_ID $FIRSTBAD_ATTEMPT' 2>/dev/null; }
SLURM_JOB_ID=4711 name
SLURM_JOB_ID=4711 name
SLURM_JOB_ID=4711 name --run-id mine
TORCHELASTIC_RUN_ID=elastic-1 name
SLURM_JOB_ID='4711;rm' TORCHELASTIC_RUN_ID=none name | grep -cE '^20[0-9-]+T[0-9-]+ 1$'
