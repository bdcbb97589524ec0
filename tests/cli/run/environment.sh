# What a program below sees: an absolute folder, the run and attempt, the policy, all injections and facts.
export FIRSTBAD_INJECT=replaced
cat > show <<'SHOW'
for name in DIR RUN_ID ATTEMPT ON_BAD MAX_SKIPS INJECT SET; do
    value=FIRSTBAD_$name
    echo "$name=${!value-unset}"
done
SHOW
firstbad run --dir runs --run-id r1 --on-bad halt --max-skips 5 --inject 'grad-inf@step=2' --inject 'token-bad@step=3,rank=1' \
    --set dataset=books --set 'note=a b=c' -- bash show 2>/dev/null | sed "s|$PWD|HERE|"
firstbad run --dir runs --run-id r1 -- bash show 2>/dev/null | sed "s|$PWD|HERE|"
