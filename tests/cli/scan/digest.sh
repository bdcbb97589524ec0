# The digests are those of the tools that everybody has.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
file=$golden/every-dtype.safetensors
sha=$(sha256sum "$file" | cut -d' ' -f1)
test "$(firstbad scan --json --digest=sha256 "$file" | json_get 'd["digest"] + " " + d["digest_of"]')" = "\"$sha sha256\""
firstbad scan --digest=sha256 "$file" | grep -q "^DIGEST *SHA-256 $sha$"
firstbad scan --json --digest=sha256 -j 1 "$golden/bad-moment.safetensors" "$golden/hostile/hole.safetensors" >out || test $? = 1
grep -q "$(sha256sum "$golden/bad-moment.safetensors" | cut -d' ' -f1)" out
# Of a folder: the list that sha256sum writes of its files, and the digest of that list.
mkdir ckpt
cp "$file" ckpt/b.safetensors
cp "$golden/causal-mask.safetensors" ckpt/a.safetensors
firstbad scan --json --digest=sha256 ckpt >out
test "$(json_get '"".join(f["digest"] + "  " + f["path"][5:] + "\n" for f in sorted(d["files"], key=lambda f: f["path"]))' <out)" = \
    "$(cd ckpt && sha256sum * | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))')"
test "$(json_get 'd["digest"]' <out)" = "\"$(cd ckpt && sha256sum * | sha256sum | cut -d' ' -f1)\""
firstbad scan --digest=sha256 ckpt | grep -c "SHA-256" | grep -qx 3
# One that was not asked for is null, and so is one of a file that was not read to its end.
test "$(firstbad scan --json "$file" | json_get '[d["digest"], d["digest_of"]]')" = "[null, null]"
test "$(firstbad scan --json --digest --first "$golden/bad-moment.safetensors" | json_get 'd["digest"]')" = null
command -v xxhsum >/dev/null || { echo "xxhsum is not installed; SHA-256 was compared" >&2; exit 77; }
xxh3=$(xxhsum -H3 "$file" | sed -e 's/.* = //; s/XXH3_//; s/ .*//')
test "$(firstbad scan --json --digest "$file" | json_get 'd["digest"]')" = "\"$xxh3\""
firstbad scan --digest "$file" | grep -q "^DIGEST *XXH3 $xxh3$"
