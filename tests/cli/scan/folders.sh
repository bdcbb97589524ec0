# A folder is one checkpoint: its index and the numbers in its names say what must be there.
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
for folder in sharded sharded-missing sharded-unlisted sharded-wrong-shard sharded-path; do
    code=0
    firstbad scan $folder || code=$?
    echo "exit $code"
done
