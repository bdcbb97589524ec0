. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Half a case file, no run.json, one ledger gone: the answer stands, and what is missing is said.
make_run r1 grad-nan
rm firstbad-runs/r1/run.json firstbad-runs/r1/ledger/a1/r00000.log
f=firstbad-runs/r1/cases/a1-000003/first_bad.json
head -c 100 "$f" >half
rm -f "$f"
mv half "$f"
firstbad why
