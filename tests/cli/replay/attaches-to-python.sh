# A trainer in Python is attached to as below `firstbad run`: what a launcher may drop stands beside the file that attaches.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
make_case case 1 412 ./trainer
answer
sed -i '2i echo "PYTHONPATH $PYTHONPATH"' trainer
PYTHONPATH=/mine firstbad replay case > told || [ $? = 1 ]
out=$(dirname "$(find case -name locate.json)")
grep PYTHONPATH "$out/output.log" | sed "s|$PWD/$out|OUT|"
ls "$out/python"
json_get 'sorted(set(d["environment"]) - {"FIRSTBAD_LIBRARY"})' < "$out/python/run.json"
