# --first stops at the first bad number, says so, and does not claim more.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
firstbad scan --first bad-in-every-dtype.safetensors || echo "exit $?"
firstbad scan --first --json bad-in-every-dtype.safetensors | json_get '[len(d["findings"]), d["whole"], d["stopped_at_first"], d["exit"]]'
firstbad scan --first every-dtype.safetensors
firstbad scan --first causal-mask.safetensors
