. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 clean
code() { set +e; firstbad export "$@" >out 2>err; echo "exit $?: $(sed 's/[0-9]* rows/N rows/' err | head -1)"; set -e; }
echo mine >file
code --jsonl file
cat file
code --sqlite file
cat file
code --jsonl file --force
head -c 8 file
echo
code --sqlite new.db
code --sqlite new.db --force
code --sqlite a --jsonl b
code
code --jsonl nosuch/file
code --sqlite -
code --sqlite=
# Root could rename a file over a device.
code --jsonl /dev/null --force
code --sqlite /dev/null --force
test -c /dev/null
code --jsonl firstbad-runs --force
ls
