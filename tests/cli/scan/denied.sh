# A file that may not be read hides nothing: what is in the others is told, and bad is graver than unreadable.
# Root may read every file, so there the tool is asked by somebody who may not.
as_guest=
if test "$(id -u)" = 0; then
    as_guest="setpriv --reuid 65534 --regid 65534 --clear-groups"
    chmod 755 .
    if ! $as_guest firstbad --version >/dev/null 2>&1 || ! $as_guest test -r .; then
        echo "nobody but root may run the tool here" >&2
        exit 77
    fi
fi
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
mkdir ckpt
cp "$golden/every-dtype.safetensors" ckpt/a.safetensors
cp "$golden/bad-moment.safetensors" ckpt/b.safetensors
chmod 000 ckpt/a.safetensors
$as_guest firstbad scan ckpt || echo "exit $?"
$as_guest firstbad scan --json ckpt 2>/dev/null | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["status"], d["exit"], d["whole"], len(d["findings"]), d["error"]["reason"])'
