# -Inf in a mask is no fault, and is told; a name alone is no proof; --allow lets -Inf pass, and nothing else.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
cd "$golden"
firstbad scan causal-mask.safetensors
for pattern in 'mask_*' mask_token '*' other; do
    firstbad scan --allow other --allow "$pattern" trained-mask-token.safetensors || echo "exit $?"
done
firstbad scan --allow='optimizer.*' bad-moment.safetensors || echo "exit $?"
firstbad scan --json --allow '*' trained-mask-token.safetensors |
    json_get '[d["status"], d["exit"], d["findings"], d["legal"][0]["tensor"], d["legal"][0]["legal"], d["legal_tensors"]]'
