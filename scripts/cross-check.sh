#!/bin/sh
# cross-check: the scanners give the same bits on every machine. Builds tests/cross/scan_digest.c with gcc and clang for this machine,
# and for aarch64 with the cross compiler, run under qemu; every kernel of each must print the same digest of the same corpus.
#   scripts/cross-check.sh [SEED]
set -eu
cd "$(dirname "$0")/.."
seed=${1:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0 wanted=

flags="-std=c11 -O2 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -Iinclude -Isrc -Itests"
sources="tests/cross/scan_digest.c src/base/status.c src/base/alloc.c src/base/hash.c $(echo src/scan/*.c)"

# one NAME RUNNER COMPILER FLAGS...: build, run, compare each line with the first digest seen.
one() {
    name=$1 runner=$2
    shift 2
    # shellcheck disable=SC2086
    if ! "$@" $flags $sources -o "$folder/digest" -lm -lpthread >"$folder/out" 2>&1; then
        failed=$((failed + 1))
        echo "FAIL $name: does not build"
        tail -n 20 "$folder/out"
        return
    fi
    if ! $runner "$folder/digest" "$seed" >"$folder/out" 2>&1; then
        failed=$((failed + 1))
        echo "FAIL $name: $(tail -n 1 "$folder/out")"
        return
    fi
    while read -r kernel digest; do
        [ -n "$wanted" ] || wanted=$digest
        if [ "$digest" = "$wanted" ]; then
            passed=$((passed + 1))
            echo "ok   $name $kernel $digest"
        else
            failed=$((failed + 1))
            echo "FAIL $name $kernel: $digest, expected $wanted"
        fi
    done <"$folder/out"
}

one gcc "" gcc
if command -v clang >/dev/null; then one clang "" clang -O3; else echo "skip clang: not installed"; fi
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    echo "skip aarch64: aarch64-linux-gnu-gcc is not installed"
elif [ -z "$qemu" ]; then
    echo "skip aarch64: qemu-aarch64 is not installed"
else
    # xxhash.h is one header without anything of this machine in it; the rest of /usr/include must not be seen by the cross compiler.
    mkdir "$folder/include"
    cp /usr/include/xxhash.h "$folder/include/"
    if [ -e /usr/include/xxh3.h ]; then cp /usr/include/xxh3.h "$folder/include/"; fi
    one aarch64 "$qemu" aarch64-linux-gnu-gcc -static -I"$folder/include"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
