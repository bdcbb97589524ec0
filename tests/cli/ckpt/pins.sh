. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
train 4
rm out/step-000004.safetensors
pin=$(firstbad ckpt latest out)
echo "# the path that latest prints may be asked for"
code verify "$pin"
echo "# a run that is asked by itself puts it back as well"
code latest firstbad-runs/r1 --restore
rm out/step-000004.safetensors
echo "# and may be mistrusted"
code quarantine "$pin" --why "loss looked wrong"
code latest out
echo "# twice, by the place where it is now, changes nothing"
code quarantine out/.firstbad/quarantine/step-000004.safetensors --why "still"
code verify out/.firstbad/quarantine/step-000004.safetensors
find out/.firstbad/* -name .firstbad
code release out/.firstbad/quarantine/step-000004.safetensors --why "the plot was of another run"
code latest out
