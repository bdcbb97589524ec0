# The table's form, what a part of the catalogue must come to, and stable keys. Nothing is left in the temporary folder.
export TMPDIR=$PWD/tmp
mkdir tmp
firstbad drill --all --seeds 2 --only temperature-zero,weight-nan,flip-once,ok-clamp > out
sed -e 's/ in [0-9]* s$/ in N s/' -e 's/located in .*/located in N s/' -e 's/  *$//' out
ls tmp
firstbad drill --all --seeds 1 --only flip-once,ok-clamp --json > out.json
python3 -c 'import json
d = json.load(open("out.json"))
print(sorted(d), sorted(d["score"]))
for s in d["scenarios"]: print(sorted(s)); print(s["id"], s["fault"], s["expected"], s["levels"], s["passed"])'
