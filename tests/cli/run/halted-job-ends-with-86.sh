# A halt of firstbad is 86 whatever the launcher made of it, also when the program ended with 0.
code=0; firstbad run --run-id halted --on-bad halt --locate none --inject 'grad-nan@step=3,site=h.1.mlp.c_fc.weight,index=7' -- \
    firstbad-gpt --steps 6 --layers 2 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0 || code=$?
echo "$code"
code=0; firstbad run --run-id swallowed --on-bad halt --inject 'grad-nan@step=3' -- \
    sh -c 'firstbad-gpt --steps 6 --layers 2 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0 2>/dev/null; exit 0' 2>/dev/null || code=$?
echo "$code"
grep -h '"halted": \|"code"' firstbad-runs/*/ledger/a1/exit.json
