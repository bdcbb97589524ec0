# Stable keys, and the truth beside what was found.
firstbad drill --ranks 2 --only collective-inf,all-ignored --dir runs --json > out.json
python3 - <<'PYTHON'
import json
drill = json.load(open("out.json"))
print(sorted(drill))
for s in drill["scenarios"]:
    print(sorted(s))
    print(s["id"], s["passed"], s["differences"], s["expected"])
    print({k: s["first_bad"][k] for k in ("step", "rank", "boundary", "site", "kind", "index", "count", "action", "ranks_agreed")})
print(drill["passed"], drill["failed"], drill["ranks"], 0 < drill["guard_percent"] < 100)
print(drill["score"])
PYTHON
test -e runs/08-collective-inf/ledger/a1/exit.json
