# A file that may not be read hides nothing: what is in the others is told, and bad is graver than unreadable.
if test "$(id -u)" = 0; then
    echo "root may read every file" >&2
    exit 77
fi
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
mkdir ckpt
cp "$golden/every-dtype.safetensors" ckpt/a.safetensors
cp "$golden/bad-moment.safetensors" ckpt/b.safetensors
chmod 000 ckpt/a.safetensors
firstbad scan ckpt || echo "exit $?"
firstbad scan --json ckpt 2>/dev/null | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["status"], d["exit"], d["whole"], len(d["findings"]), d["error"]["reason"])'
