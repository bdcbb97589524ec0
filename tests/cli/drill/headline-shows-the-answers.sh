# The headline's five answers come before the table, and its run stays so that they can be asked again, as JSON.
export TMPDIR=$PWD/tmp
mkdir tmp
firstbad drill --ranks 2 --only mask-full-row | sed -e "s|$PWD|HERE|" -e 's/drill-[A-Za-z0-9]*/drill-X/' > out
grep -E '^(1 First bad|2 Spread|3 Decision|4 Reproduce|5 Resume|Cause|Witness|Case)' out | cut -c1-60
tail -4 out | sed 's/ in [0-9]* s.*//'
code=0; firstbad why --json tmp/*/24-mask-full-row > why.json || code=$?
python3 -c 'import json
first = json.load(open("why.json"))["first_bad"]
print({k: first[k] for k in ("step", "rank", "boundary", "module", "tensor", "kind", "index", "count")})'
exit "$code"
