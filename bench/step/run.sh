#!/bin/sh
# What the guard costs in a healthy training step; see the head of bench.py. Usage: bench/step/run.sh [ARGUMENTS OF bench.py]
# Needs MPI, and a built tree in build/ or $FIRSTBAD_BUILD for its library and tool.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=${FIRSTBAD_BUILD:-build}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
wrap=
for call in step_begin step_check step_check_sampled step_check_tokens step_ballot step_settle step_unscale step_apply step_end \
    run_close; do
    wrap="$wrap -Wl,--wrap=fb_$call"
done
# The flags of examples/gpt/CMakeLists.txt that change code.
mpicc -std=c11 -O3 -DNDEBUG -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -fno-trapping-math -Iinclude -Iexamples/gpt \
    examples/gpt/*.c bench/step/calls.c "$build/libfirstbad.a" $wrap -lm -lpthread -o "$work/firstbad-gpt"
python3 bench/step/bench.py "$work" "$build/firstbad" "$@"
