# The samples of a case stay away from the next attempt: the program is given a file of them, and one line says so.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
exec 2>&1
cat > show <<'SHOW'
echo "${FIRSTBAD_LEAVE_OUT-unset}" | sed "s|$PWD|HERE|"
[ -z "${FIRSTBAD_LEAVE_OUT-}" ] || tr '\n' ' ' < "${FIRSTBAD_LEAVE_OUT#@}"
echo
SHOW
run() { firstbad run "$@" -- bash show 2>&1 | grep -v -e '^firstbad: nothing was guarded' -e '^  '; }
make_run r1 grad-nan
echo "--- no smallest batch was found"
run --run-id r2 --leave-out r1
echo "--- there is one"
case=firstbad-runs/r1/cases/a1-000003
"$FIRSTBAD_BUILD/tests/make-bundle" "$case/bundle-min" 2 3 a1-000003 7,5
run --run-id r3 --leave-out "$case"
echo "--- two cases, a folder that was copied"
mkdir copied
"$FIRSTBAD_BUILD/tests/make-bundle" copied/bundle 1 9 a1-000009 1,2,3,4,5,6,7,8
cp -r copied/bundle copied/bundle-min
run --run-id r4 --leave-out copied --leave-out r1
echo "--- a smallest batch that was named, wherever it lies"
cp -r copied/bundle-min elsewhere-bundle-min && mkdir far && mv elsewhere-bundle-min far/bundle-min
run --run-id r7 --leave-out far/bundle-min
echo "--- a case without its run: all samples of its bundle"
mkdir away && "$FIRSTBAD_BUILD/tests/make-bundle" away/bundle 2 9 a1-000009 3,4
run --run-id r8 --leave-out away
echo "--- the cause lies elsewhere"
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer 'd["cause"].update({"class": "fp16_forward_overflow", "lies_in": "numbers"})'
cp answer.json copied/locate.json
run --run-id r6 --leave-out copied | head -1
echo "--- a bundle that was changed is not believed"
printf x | dd of="$case/bundle-min/batch-r00000.safetensors" bs=1 seek=130 conv=notrunc status=none
code=0
firstbad run --run-id r5 --leave-out r1 -- touch started > said 2>&1 || code=$?
sed "s|$PWD|HERE|; s/0x[0-9a-f]*/HASH/g" said
echo "exit $code"
test ! -e started
grep -o '"left_out": [0-9]*' firstbad-runs/r3/ledger/a1/launch.json
