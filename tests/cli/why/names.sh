. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# A run id, a path, a case, a step: all lead to the same answer.
make_run r1 grad-nan
firstbad why r1 >expected || test $? = 1
for name in 3 000003 a1-000003 firstbad-runs/r1 firstbad-runs/r1/cases/a1-000003 firstbad-runs; do
    firstbad why "$name" >got || test $? = 1
    cmp expected got || echo "differs for $name"
done
firstbad why r1 --case 3 >got || test $? = 1
cmp expected got
firstbad why r1 --case=a1-000003 >got || test $? = 1
cmp expected got
firstbad why --dir "$PWD/firstbad-runs" r1 --attempt 1 --json >got || test $? = 1
test "$(grep -c '"boundary": "local_gradient"' got)" = 2
FIRSTBAD_DIR=firstbad-runs firstbad why r1 >got || test $? = 1
cmp expected got
