# One object, all keys documented; locate.json stands in it as it is.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_case c 1 412 ./trainer
firstbad replay c --json > said || echo "exit $?"
json_get '{k: d[k] for k in d if k not in ("seconds", "locate")}' < said | here
json_get 'd["locate"] == json.load(open("answer.json")), d["seconds"] >= 0' < said
firstbad bisect c --json > said || echo "exit $?"
json_get 'd["status"], d["witnessed"], d["exit"]' < said
sed -n '/^## `firstbad replay --json`/,/^## `firstbad bisect --json` of/p' "$FIRSTBAD_SOURCE/docs/format/json.md" > page
json_get '[k for k in d if k != "schema" and "`" + k not in open("page").read()]' < said
