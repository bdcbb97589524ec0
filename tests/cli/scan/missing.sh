# No answer at all: the sentence goes to standard error, and a program still gets its object.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
code=0
firstbad scan nosuch 2>err || code=$?
echo "exit $code"
cat err
firstbad scan --json nosuch 2>/dev/null | json_get '[d["status"], d["exit"], d["whole"], d["error"], d["digest"]]'
