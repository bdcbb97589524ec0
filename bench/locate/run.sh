#!/bin/sh
# What locating costs; see the head of bench_locate.c. Usage: bench/locate/run.sh [OPERATORS [ELEMENTS]] (400 65536)
# Needs a built tree in build/ or $FIRSTBAD_BUILD for its library.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=${FIRSTBAD_BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cc -std=c11 -O2 -D_GNU_SOURCE -Iinclude bench/locate/bench_locate.c "$build/libfirstbad.a" -lz -lm -lpthread -o "$work/bench_locate"
"$work/bench_locate" "$@"
