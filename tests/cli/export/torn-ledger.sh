. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# A torn ledger gives its valid prefix; one that is no ledger at all is told, and the others are exported.
make_run r1 clean
f=firstbad-runs/r1/ledger/a1/r00001.log
size=$(stat -c %s "$f")
truncate -s $((size - 20)) "$f"
echo "no ledger" >firstbad-runs/r1/ledger/a1/r00002.log
set +e
firstbad export --sqlite out.db 2>err
echo "exit $?"
sed 's/after [0-9]* records/after N records/; s/wrote [0-9]* rows/wrote N rows/' err
sqlite3 out.db "select rank, count(*) from steps group by rank"
