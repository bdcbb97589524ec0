. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Both forms hold the same values.
make_run r1 bad-token
firstbad export --sqlite out.db 2>note
firstbad export --jsonl out.jsonl 2>note
python3 - <<'EOF'
import json, sqlite3
db = sqlite3.connect("out.db")
db.row_factory = sqlite3.Row
lines = [json.loads(line) for line in open("out.jsonl")]
for table in ("run", "sites", "steps", "findings", "verdicts", "events", "proofs"):
    left = [dict(row) for row in db.execute(f"select * from {table} order by rowid")]
    right = [{k: v for k, v in row.items() if k != "table"} for row in lines if row["table"] == table]
    for row in right:
        for k, v in row.items():
            if isinstance(v, bool): row[k] = int(v)
            if isinstance(v, list): row[k] = json.dumps(v, separators=(",", ":"))
    assert left == right, table
    print(table)
EOF
