# A case folder that was renamed inside its run is still this case, and so is one below a run folder that was renamed.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan-halt
write_locate r1
mv firstbad-runs/r1/cases/a1-000003 firstbad-runs/r1/cases/softmax
mv firstbad-runs/r1 firstbad-runs/kept
facts='d["case"]["folder"], d["location"]["origin"]["operator"], d["proof"]["notes"]'
for name in kept firstbad-runs/kept/cases/softmax a1-000003 3; do
    firstbad why "$name" --json > out.json || test $? = 1
    json_get "$facts" < out.json
done
# A copy beside it: the one that bears the name of the case is taken.
cp -r firstbad-runs/kept/cases/softmax firstbad-runs/kept/cases/a1-000003
firstbad why kept --json > out.json || test $? = 1
json_get "$facts" < out.json
