# The truth of the drill and that of docs/faults.md were written down apart from each other: where they differ, one of them is wrong.
firstbad drill --all --list --json > truth.json
python3 - "$FIRSTBAD_SOURCE/docs/faults.md" <<'PYTHON'
import json, re, sys
truth = json.load(open("truth.json"))
mine = {f["id"]: f for f in truth["faults"]}
rows = {}
for line in open(sys.argv[1]):
    cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
    if len(cells) == 8 and cells[0].startswith("`"):
        rows[re.match(r"`([^`]+)`", cells[0]).group(1)] = cells
def within(ours, theirs):
    return set(ours.split("|")) <= set(theirs.split("|"))
wrong = []
for name, (first, _, seen, origin, cause, rule, samples, _) in rows.items():
    if name not in mine:
        continue
    f, e = mine[name], mine[name]["expected"]
    options = " ".join(re.findall(r"`([^`]+)`", first)[1:])
    if f["arguments"] != options: wrong.append((name, "arguments", f["arguments"], options))
    late = int(m.group(1)) if (m := re.search(r"shows at \+(\d+)", seen)) else 0
    if f["late"] != late: wrong.append((name, "late", f["late"], late))
    if e["answer"] == "disagreement":
        if not seen.startswith("disagreement"): wrong.append((name, "seen", seen))
        continue
    if not within(e["cause"], cause): wrong.append((name, "cause", e["cause"], cause))
    if e["rule"] is not None and not within(e["rule"], rule): wrong.append((name, "rule", e["rule"], rule))
    if str(e["samples"] or "-") != samples: wrong.append((name, "samples", e["samples"], samples))
    if e["operator"] is None:
        if not origin.startswith("no operator"): wrong.append((name, "operator", None, origin))
        if e["tensor"] and f"`{e['tensor']}`" not in origin: wrong.append((name, "tensor", e["tensor"], origin))
        if e["answer"] == "entry" and e["module"] not in ("", "*") and f"`{e['module']}`" not in origin:
            wrong.append((name, "module", e["module"], origin))
        continue
    op, module, boundary = re.match(r"`([^`]+)`(?: of (`[^`]+`|a parameter))?, (\w+)", origin).groups()
    if op != e["operator"]: wrong.append((name, "operator", e["operator"], op))
    if boundary != e["boundary"]: wrong.append((name, "boundary", e["boundary"], boundary))
    if e["module"] not in ("*", (module or "").strip("`")): wrong.append((name, "module", e["module"], module))
print("wrong", wrong)
print("not drilled", sorted(n for n in rows if n not in mine))
print("not in the catalogue", sorted(n for n in mine if n not in rows))
listed = {n for n in re.findall(r"^\| `(ok-[^`]+)`", open(sys.argv[1]).read(), re.M)}
print("healthy ones that are not drilled", sorted(listed - {h["fault"] for h in truth["healthy"]}))
print(len(mine) >= 48, len(truth["healthy"]) >= len(mine))
PYTHON
