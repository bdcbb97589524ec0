# A signal ends the trainer and what it started, and is the exit code.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_case c 1 412 ./trainer
mkfifo begun
firstbad replay c -- bash -c 'sleep 100 & echo $! > pid; echo > begun; wait' 2> said & job=$!
read -r _ < begun
kill -TERM $job
code=0; wait $job || code=$?
echo "exit $code"
sed 's/after [0-9]* s/after N s/' said | here
for _ in $(seq 100); do kill -0 "$(cat pid)" 2>/dev/null || break; sleep 0.05; done
kill -0 "$(cat pid)" 2>/dev/null || echo "nothing is left"
# A shell is gone at once; what it started, and does not heed SIGTERM, does not outlive it.
firstbad replay c -- bash -c 'bash -c "trap \"\" TERM; echo \$\$ > pid; echo > begun; while :; do sleep 0.1; done"; true' 2> said & job=$!
read -r _ < begun
kill -TERM $job
code=0; wait $job || code=$?
echo "exit $code"
for _ in $(seq 100); do kill -0 "$(cat pid)" 2>/dev/null || break; sleep 0.05; done
kill -0 "$(cat pid)" 2>/dev/null || echo "nothing is left"
