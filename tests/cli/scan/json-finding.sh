. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
firstbad scan --json bad-moment.safetensors | json_get 'd["findings"]'
firstbad scan --json bad-moment.safetensors | json_get '[d[k] for k in ("status", "exit", "whole", "tensors", "elements", "bytes", "bad", "bad_tensors", "error", "digest")]'
firstbad scan --json causal-mask.safetensors | json_get '[[f["index"], f["flat_index"], f["shape"], f["neg_inf"], f["legal"]] for f in d["legal"]]'
firstbad scan --json sharded-missing | json_get '[d["status"], d["kind"], d["error"]["reason"][-59:], d["error"]["offset"], [(f["path"], f["status"], f["tensors"]) for f in d["files"]]]'
firstbad scan --json hostile/hole.safetensors | json_get 'd["error"]'
firstbad scan --json unknown-dtype.safetensors | json_get '[d["status"], d["unscanned"]]'
