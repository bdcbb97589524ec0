#!/bin/sh
# What a record of the log costs; see the head of bench_log.c. Usage: bench/log/run.sh [FOLDER]
# FOLDER is on the file system to measure (default: build-bench in the source tree). Needs a C compiler, SQLite and xxHash headers.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/build-bench}
mkdir -p "$folder"
work=$(mktemp -d "$folder/log-XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
cd "$root"
${CC:-cc} -std=c11 -O2 -D_GNU_SOURCE -Iinclude -Isrc bench/log/bench_log.c src/log/log.c src/log/layout.c src/os/os.c \
    src/os/os_posix.c src/base/alloc.c src/base/status.c src/base/hash.c -lsqlite3 -o "$work/bench_log"
"$work/bench_log" "$work"
