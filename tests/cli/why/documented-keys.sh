. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Every key of the answer, and every column of an export, is documented.
make_run r1 two-ranks
make_run r2 no-vote
firstbad why r1 --json >a.json || test $? = 1
firstbad why r2 --json >b.json || test $? = 4
firstbad export r1 --jsonl rows 2>note
python3 - "$FIRSTBAD_SOURCE/docs" <<'EOF'
import json, re, sys
def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)
def words(name):
    return set(re.findall(r"[a-z_0-9]+", open(f"{sys.argv[1]}/{name}").read()))
written = set(keys([json.load(open("a.json")), json.load(open("b.json"))]))
print(sorted(written - words("format/json.md")))
columns = {key for line in open("rows") for key in json.loads(line)}
columns = {key for key in columns if not key.startswith(("cover_", "tensors_"))}
print(sorted(columns - words("man/firstbad-export.1") - words("format/json.md")))
assert len(written) > 80 and len(columns) > 80
EOF
