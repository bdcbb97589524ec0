# A folder is one checkpoint: its index and the numbers in its names say what must be there.
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
for folder in sharded sharded-missing sharded-unlisted sharded-wrong-shard sharded-path; do
    { firstbad scan $folder || echo "exit $?"; } | tr -s ' \n' ' '
    echo
done
