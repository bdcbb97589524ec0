# Nothing was found and nothing was looked at are different answers.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
cp "$golden"/{no-tensor,only-integers,unknown-dtype}.safetensors .
mkdir folder
: >empty
mkfifo pipe
echo "a text" >notes.txt
for path in no-tensor.safetensors only-integers.safetensors unknown-dtype.safetensors folder empty pipe notes.txt; do
    code=0
    firstbad scan $path || code=$?
    echo "exit $code"
done
code=0
firstbad scan --json only-integers.safetensors >json || code=$?
test $code = 4
grep -q '"status":"unsupported","exit":4' json
