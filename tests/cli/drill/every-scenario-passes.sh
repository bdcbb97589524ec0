# The whole drill, on four ranks: every fault found at its place, the same action everywhere, the state untouched, silence when healthy.
firstbad drill --dir runs --json > out.json || { python3 -c 'import json
for s in json.load(open("out.json"))["scenarios"]: print(s["id"], s["passed"], s["differences"])' >&2; exit 1; }
python3 -c 'import json
drill = json.load(open("out.json"))
for s in drill["scenarios"]: print(s["id"], s["passed"])
print(drill["failed"], {k: v["right"] == v["of"] > 0 for k, v in drill["score"].items()})'
