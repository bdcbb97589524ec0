# Why a Python program was not guarded: each reason in its own words, and the same for programs.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
unset FIRSTBAD_PYTHON
unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX
told() { grep -A1 '^  Python' | grep -v '^  others' | tr '\n' ' ' | tr -s ' ' | sed -e 's/ *$//' -e "s|$PWD|HERE|g"; echo; }
said() { firstbad run "$@" 2>&1 >/dev/null | told; }
echo "--- none, or one that cannot be seen"
said -- true
echo "--- it ran, seen by what it leaves"
said -- sh -c 'python3 -c pass'
echo "--- it ran, seen by its name"
PYTHONDONTWRITEBYTECODE=1 said -- python3 -c pass
echo "--- isolated"
for flags in -I -E -S -sE "-W error -I" "-c pass"; do said -- python3 $flags -c pass; done
echo "--- switched off"
said --no-python -- true
echo "--- a folder that is none"
FIRSTBAD_PYTHON=nowhere said -- true
echo "--- a path that PYTHONPATH cannot hold"
said --dir a:b -- true
echo "--- as JSON"
firstbad run --json -- sh -c 'python3 -c pass' 2>&1 | json_get '[d["guarded"], d["python"], d["attempt"], d["newest_attempt"]]'
