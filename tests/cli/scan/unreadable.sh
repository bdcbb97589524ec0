# What is not what it claims to be is never called clean, and the sentence says where it went wrong.
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
for file in hostile/*; do
    code=0
    firstbad scan "$file" >/dev/null 2>&1 || code=$?
    test $code = 3 || echo "$file: exit $code"
done
firstbad scan hostile/truncated-data.safetensors || echo "exit $?"
firstbad scan hostile/two-names.safetensors hostile/length-bomb.safetensors || echo "exit $?"
