# An answer that nobody could read is no success; a reader that went away ends it quietly.
[ -e /dev/full ] || { echo "no /dev/full" >&2; exit 77; }
file=$FIRSTBAD_SOURCE/tests/golden/safetensors/every-dtype.safetensors
set +e
for option in --json --stats --digest; do
    firstbad scan $option "$file" "$file" >/dev/full 2>err
    echo "exit $? $(cat err)"
done
firstbad scan "$file" >&- 2>err
echo "exit $? $(wc -l <err)"
firstbad scan --json $(yes "$file" | head -n 300) 2>err | head -c 1 | wc -c
wc -c <err
