. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 late
firstbad export --jsonl - >lines
python3 - <<'EOF'
import collections, json
def no(name):
    raise ValueError(name)
rows = [json.loads(line, parse_constant=no) for line in open("lines")]
count = collections.Counter(row["table"] for row in rows)
print(count["steps"], count["verdicts"], count["findings"])
found = [row for row in rows if row["table"] == "findings"]
print([(row["step"], row["boundary"], row["frozen"], row["kind"], row["index_in_shape"]) for row in found])
keys = collections.defaultdict(set)
for row in rows:
    keys[row["table"]].add(tuple(row))
print(all(len(k) == 1 for k in keys.values()))
EOF
firstbad export --jsonl file 2>note
cmp lines file
