. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
train 4
size=$(stat -c %s out/step-000004.safetensors)
# Four bytes near the end of the file, inside a moment or a parameter: a NaN.
printf '\377\377\377\377' | dd of=out/step-000004.safetensors bs=1 seek=$((size - 400)) conv=notrunc 2>/dev/null
code verify out/step-000002.safetensors out/step-000004.safetensors | sed -e 's/first in .*/first in TENSOR/'
echo "# its pin shared the bytes, so the one before is given"
code latest out
code list out | sed -e 's/not finite: [^;]*/not finite: TENSOR/'
echo "# bad numbers are not vouched for"
code release out/step-000004.safetensors --why "please" | sed -e 's/first in .*; it/first in TENSOR; it/'
