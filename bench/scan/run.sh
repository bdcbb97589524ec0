#!/bin/sh
# What a scan costs; see the head of bench.py. Usage: bench/scan/run.sh [ARGUMENTS OF bench.py]
# Needs an x86-64 C compiler and a Python that has torch and numpy: FIRSTBAD_PYTHON, else .venv/bin/python, else python3.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
python=${FIRSTBAD_PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
# The flags of cmake/flags.cmake that change code; one object with the library in it, so that peers and roofs share a process.
${CC:-cc} -std=c11 -O3 -DNDEBUG -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -fPIC -shared -fvisibility=hidden -Iinclude -Isrc \
    bench/scan/roof.c src/scan/*.c src/base/status.c src/base/alloc.c -o "$work/bench_scan.so" -lm -lpthread
"$python" bench/scan/bench.py "$work/bench_scan.so" "$@"
