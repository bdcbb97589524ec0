. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
mkdir ckpts
cp "$FIRSTBAD_SOURCE/tests/golden/safetensors/every-dtype.safetensors" ckpts/a.safetensors
code latest ckpts
code verify ckpts/a.safetensors
code latest ckpts
code release ckpts/a.safetensors --why "trained without a guard; curve checked"
code latest ckpts
code log ckpts | head -n 5
