# run.json is the first attempt's and never replaced; each attempt has a launch and an end of its own.
code=0; firstbad run --run-id again --set color=red -- sh -c 'exit 1' 2>/dev/null || code=$?
[ $code = 1 ]
cp firstbad-runs/again/run.json before
code=0; firstbad run --run-id again --set color=blue -- sh -c 'exit 2' 2>/dev/null || code=$?
[ $code = 2 ]
cmp before firstbad-runs/again/run.json
grep -h '"code": [0-9]' firstbad-runs/again/ledger/a1/exit.json firstbad-runs/again/ledger/a2/exit.json
python3 - <<'PYTHON'
import json, os
run = json.load(open("firstbad-runs/again/run.json"))
print(run["schema"], run["run_id"], run["command"], run["meta"], run["cwd"] == os.getcwd(), sorted(run))
launch = json.load(open("firstbad-runs/again/ledger/a2/launch.json"))
print(launch["schema"], launch["attempt"], launch["command"])
end = json.load(open("firstbad-runs/again/ledger/a2/exit.json"))
print(end["schema"], end["halted"], end["signal"], end["ended_unix"] >= launch["started_unix"] > 1700000000)
PYTHON
