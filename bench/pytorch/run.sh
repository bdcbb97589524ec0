#!/bin/sh
# What firstbad costs a healthy PyTorch training; see the head of bench.py. Usage: bench/pytorch/run.sh [ARGUMENTS OF bench.py]
# Needs PyTorch in $PYTHON (python3), and a built tree in build/ or $FIRSTBAD_BUILD.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
exec "${PYTHON:-python3}" bench/pytorch/bench.py "$@"
