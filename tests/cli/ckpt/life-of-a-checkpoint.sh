. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
train 4
echo "# saved, read back, committed"
code list out
code latest out
code latest firstbad-runs/r1
echo "# rotation takes the newest one away"
rm out/step-000004.safetensors
code latest out --verify
code latest out --restore
test -f out/step-000004.safetensors
echo "# an operator does not trust it"
code quarantine out/step-000004.safetensors --why "loss looked wrong"
test ! -e out/step-000004.safetensors
code list out
code latest out
echo "# and changes his mind"
code release out/step-000004.safetensors --why "the plot was of another run"
code latest out
