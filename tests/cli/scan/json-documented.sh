# One strict object a line, whatever the path; every key of it is documented.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
paths=("$golden"/*.safetensors "$golden"/hostile/* "$golden"/sharded*)
code=0
firstbad scan --json --stats --digest "${paths[@]}" >out || code=$?
echo "exit $code"
python3 - "$FIRSTBAD_SOURCE/docs/format/json.md" "${paths[@]}" <<'END'
import json, re, sys
def no(name): raise ValueError(name)
def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value: yield from keys(inner)
objects = [json.loads(line, parse_constant=no) for line in open("out")]
assert [o["path"] for o in objects] == sys.argv[2:]
page = open(sys.argv[1]).read()
page = page[page.index("## `firstbad scan --json`"):page.index("export --jsonl")]
print(sorted(set(keys(objects)) - set(re.findall(r"[a-z_0-9]+", page))))
promised = "path format status tensors elements bytes findings unscanned security digest error legal notes unreferenced files".split()
assert all(set(promised) <= o.keys() for o in objects)
exits = {"clean": 0, "non_finite": 1, "unreadable": 3, "limit": 3, "unsupported": 4}
for o in objects:
    assert exits[o["status"]] == o["exit"], o
    assert (o["status"] == "non_finite") == bool(o["findings"])
    assert o["error"] or o["exit"] < 3
    assert not (o["status"] in ("unreadable", "limit") and o["whole"])
    for f in o["findings"] + o["legal"]:
        assert len(f["index"]) == len(f["shape"]) and re.fullmatch("0x[0-9a-f]+", f["bits"])
        assert all(0 <= i < n for i, n in zip(f["index"], f["shape"]))
        assert f["nan"] + f["pos_inf"] + f["neg_inf"] > 0
print(sum(o["exit"] == 1 for o in objects), sum(len(o["files"]) for o in objects))
END
