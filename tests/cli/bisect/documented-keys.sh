# Every key of the JSON is in docs/format/json.md.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 loss > places
names loss > bad
search --json > answer
sed -n '/^## `firstbad bisect --json` of a command/,/^## `firstbad drill/p' "$FIRSTBAD_SOURCE/docs/format/json.md" > page
python3 - <<'PYTHON'
import json
text = open("answer").read()
page, answer = open("page").read(), json.loads(text[:text.rindex("}") + 1])
keys = set(answer) | set(answer["candidates"][0]) | set(answer["chain"][0])
print(sorted(k for k in keys if k != "schema" and k not in page) or "all documented")
PYTHON
