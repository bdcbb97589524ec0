# The trainer's own words from the bundle, behind the launcher that `firstbad run` recorded; a script that starts it is not run.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer 'd["step"] = 3'
mkdir bin
cat > bin/mpirun <<'MPIRUN'
#!/bin/bash
[ "$1" = --version ] && { echo "mpirun (Some MPI) 1.0"; exit 0; }
echo "mpirun $*"
while [ "$1" != ./trainer ]; do shift; done
exec "$@"
MPIRUN
chmod +x bin/mpirun
PATH=$PWD/bin:$PATH
make_run r1 grad-nan
case=firstbad-runs/r1/cases/a1-000003
"$FIRSTBAD_BUILD/tests/make-bundle" $case/bundle 4 3 a1-000003 7 ./trainer --steps 9
launch() { python3 -c 'import json, sys; json.dump({"command": sys.argv[1:]}, open("firstbad-runs/r1/ledger/a1/launch.json", "w"))' "$@"; }
ran() { firstbad replay "$@" | grep -A1 -e '^  differs' -e '^  ran' | grep -v -e '^--' | here; }
echo "--- nothing recorded"; ran r1
echo "--- a launcher"; launch mpirun -n 4 --bind-to none ./trainer --steps 9; ran 3
echo "--- a launcher behind others"; launch env OMP_NUM_THREADS=1 mpirun -n 4 ./trainer --steps 9; ran a1-000003
echo "--- a script"; launch bash train.sh; ran $case
echo "--- other words"; launch mpirun -n 4 ./trainer --steps 10; ran r1
echo "--- no launcher"; launch ./trainer --steps 9; ran r1
echo "--- alone"; ran r1 --alone
echo "--- given"; ran r1 -- mpirun -n 2 ./trainer --steps 9
echo "--- torn"; printf '{"command": ["mpirun", "./trai' > firstbad-runs/r1/ledger/a1/launch.json; ran r1
