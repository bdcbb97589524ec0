#!/bin/sh
# What the vote costs; see the head of bench_vote.c. Usage: bench/vote/run.sh [RANKS ...] (2 and 4)
# Needs MPI, and a built tree in build/ or $FIRSTBAD_BUILD for its library.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=${FIRSTBAD_BUILD:-build}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mpicc -std=c11 -O2 -D_GNU_SOURCE -Iinclude bench/vote/bench_vote.c "$build/libfirstbad.a" -lm -lpthread -o "$work/bench_vote"
[ $# -gt 0 ] || set -- 2 4
for ranks; do
    mpirun -n "$ranks" --oversubscribe "$work/bench_vote" "$work/runs"
done
