# A job of which one process could not be attached to: what was guarded is the answer, and that it was not all of it is told.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
cat > job <<'SH'
"$FIRSTBAD_BUILD/tests/make-run" "$FIRSTBAD_DIR" "$FIRSTBAD_RUN_ID" clean >/dev/null
cd "$FIRSTBAD_DIR/$FIRSTBAD_RUN_ID/ledger/a1/python"
echo '{"pid": 1, "error": null}' > pid-1.here.json
echo '{"pid": 2, "command": "python train.py", "error": "ValueError: \u001b[31mno\n"}' > pid-2.here.json
printf '{"pid": 3, "err' > pid-3.here.json
echo '{}' > pid-4.txt
SH
firstbad run -- bash job 2>&1
firstbad run --json -- bash job 2>&1 | json_get '[d["guarded"], d["status"], d["python"]["imported_torch"], d["python"]["failed"], d["python"]["error"]]'
