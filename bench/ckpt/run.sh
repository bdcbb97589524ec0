#!/bin/sh
# What it costs to scan a checkpoint; see the head of bench.py. Usage: bench/ckpt/run.sh [ARGUMENTS OF bench.py]
# Needs an x86-64 C compiler, xxHash and zlib headers, and a Python that has torch, numpy and safetensors: FIRSTBAD_PYTHON, else
# .venv/bin/python, else python3. Files are written to build-bench in the source tree, or where --folder says.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
python=${FIRSTBAD_PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=python3
if ! "$python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
    echo "SKIP bench/ckpt: $python has no torch, numpy and safetensors; name one that has in FIRSTBAD_PYTHON"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
# The flags of cmake/flags.cmake that change code; one object with the library in it, so that ours and its peers share a process.
${CC:-cc} -std=c11 -O3 -DNDEBUG -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -fPIC -shared -fvisibility=hidden -Iinclude -Isrc \
    bench/ckpt/bench_ckpt.c src/ckpt/*.c src/scan/*.c src/os/*.c src/base/*.c -o "$work/bench_ckpt.so" -lxxhash -lz -lm -lpthread
"$python" bench/ckpt/bench.py "$work/bench_ckpt.so" "$@"
