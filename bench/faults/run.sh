#!/bin/sh
# Faults in training scripts of others, under firstbad and under what people use today; see the heads of run.py and judge.py.
# Usage: bench/faults/run.sh [ARGUMENTS OF run.py]
# Needs PyTorch in $PYTHON (python3), with transformers, accelerate and lightning for some, and a built tree in build/ or $FIRSTBAD_BUILD.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
exec "${PYTHON:-python3}" bench/faults/run.py "$@"
