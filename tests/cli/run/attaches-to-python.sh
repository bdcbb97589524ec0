# What stands in PYTHONPATH: one folder of this attempt, before what was there; an empty variable counts as not set.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
show() { firstbad run --run-id r "$@" -- sh -c 'echo "${PYTHONPATH-unset}"' 2>/dev/null | sed "s|$PWD|HERE|g"; }
unset PYTHONPATH
show
PYTHONPATH= show
PYTHONPATH=/one:/two show
show --no-python
ls firstbad-runs/r/ledger/a1/python
cmp firstbad-runs/r/ledger/a1/python/sitecustomize.py "$FIRSTBAD_SOURCE/python/firstbad/bootstrap/sitecustomize.py"
# All that a launcher may drop on the way stands in run.json.
firstbad run --run-id s --on-bad halt --inject 'grad-inf@step=2' --set note=a -- true 2>/dev/null
json_get 'sorted(set(d["environment"]) - {"FIRSTBAD_LIBRARY"})' < firstbad-runs/s/ledger/a1/python/run.json
# Behind torchrun the count of its restarts is where ours begins.
TORCHELASTIC_RESTART_COUNT=2 firstbad run --run-id t -- sh -c 'echo $FIRSTBAD_RESTARTS' 2>/dev/null
