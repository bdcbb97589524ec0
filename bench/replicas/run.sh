#!/bin/sh
# What comparing replicas costs; see the head of bench_replicas.c. Usage: bench/replicas/run.sh
# Needs a built tree in build/ or $FIRSTBAD_BUILD for its library.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=${FIRSTBAD_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
${CC:-cc} -std=c11 -O2 -D_GNU_SOURCE -Iinclude bench/replicas/bench_replicas.c "$build/libfirstbad.a" -lm -lz -lpthread \
    -o "$work/bench_replicas"
"$work/bench_replicas" "$work/runs"
