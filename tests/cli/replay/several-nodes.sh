# Open MPI keeps variables from other nodes unless it is told: a rank that does not hear of the replay would train, and all wait for it.
# This mpirun starts every rank as on another node.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer 'd["step"] = 3'
mkdir bin
cat > bin/mpirun <<'MPIRUN'
#!/bin/bash
[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit 0; }
pass=()
run_part() { env -i PATH="$PATH" "${pass[@]}" "$@"; pass=(); }
while [ $# -gt 0 ]; do
    case $1 in
        -x) case $2 in *=*) pass+=("$2") ;; *) pass+=("$2=${!2-unset}") ;; esac; shift 2 ;;
        -n) shift 2 ;;
        ./trainer)
            part=()
            while [ $# -gt 0 ] && [ "$1" != : ]; do part+=("$1"); shift; done
            [ $# -gt 0 ] && shift
            run_part "${part[@]}" ;;
        *) shift ;;
    esac
done
MPIRUN
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH
make_run r1 grad-nan
case=firstbad-runs/r1/cases/a1-000003
"$FIRSTBAD_BUILD/tests/make-bundle" $case/bundle 4 3 a1-000003 7 ./trainer --steps 9
launch() { python3 -c 'import json, sys; json.dump({"command": sys.argv[1:]}, open("firstbad-runs/r1/ledger/a1/launch.json", "w"))' "$@"; }
# What each part of the command was told.
heard() {
    local code=0
    firstbad replay "$@" > said || code=$?
    echo "exit $code"
    sed -n 's/^  results  *//p' said | while read -r folder; do grep -e '^trainer' -e '^FIRSTBAD_' "$folder/output.log" | here; done
}
echo "--- nothing recorded"; heard r1
echo "--- what was said of another run is left away"
launch mpirun -x FIRSTBAD_DIR -x FIRSTBAD_RUN_ID=r1 -x LANG -n 4 ./trainer --steps 9; heard r1 --times 5
grep -A4 '^  ran' said | here
echo "--- two programs"; launch mpirun -n 1 ./trainer --first : -n 3 ./trainer --steps 9; heard r1
echo "--- given, in two forms"; heard r1 -- mpirun -n 4 ./trainer --steps 9
firstbad replay r1 -- env mpirun -n 4 ./trainer 2>&1 | tail -1 | here
