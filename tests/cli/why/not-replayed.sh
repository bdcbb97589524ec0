. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Why nobody replayed, where the run folder tells it.
make_run r1 grad-nan
python3 - <<'END'
import json
path = "firstbad-runs/r1/run.json"
run = json.load(open(path))
run["command"] = ["firstbad-gpt", "--locate", "none"]
json.dump(run, open(path, "w"))
END
firstbad why | grep -A1 "4 Reproduce"
firstbad why --json | json_get 'd["replay"]["reason"]'
