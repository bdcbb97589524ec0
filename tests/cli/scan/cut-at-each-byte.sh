# A file that was cut short, anywhere, is not clean, and not blamed for numbers that are not there.
file=$FIRSTBAD_SOURCE/tests/golden/safetensors/causal-mask.safetensors
size=$(stat -c %s "$file")
for ((n = 0; n < size; n += 3)); do
    head -c $n "$file" >cut.safetensors
    code=0
    firstbad scan cut.safetensors >out || code=$?
    test $code = 3 -o $code = 4 || { echo "cut at $n: exit $code"; cat out; }
    ! grep -q "CLEAN\|nothing left" out
done
test $n -ge "$size"
