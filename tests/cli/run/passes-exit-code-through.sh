# The command's own code comes back, and 128 + N where signal N ended it, as in a shell.
try() { code=0; "$@" 2>/dev/null || code=$?; echo "$code"; }
try firstbad run -- true
try firstbad run -- sh -c 'exit 1'
try firstbad run -- sh -c 'exit 255'
try firstbad run -- sh -c 'kill -TERM $$'
try firstbad run -- sh -c 'kill -KILL $$'
try firstbad run sh -c 'exit 7'
grep -h '"code"\|"signal"' firstbad-runs/*/ledger/a1/exit.json | sort | uniq -c | sed 's/^ *//'
