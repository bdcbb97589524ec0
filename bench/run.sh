#!/bin/sh
# Every benchmark, one after the other: bench/*/run.sh. Each opens with what it shows. Nothing else should run on the machine meanwhile.
set -eu
cd "$(dirname "$0")/.."
failed=0
for script in bench/*/run.sh; do
    echo "== $script"
    "$script" || { echo "FAIL $script"; failed=1; }
done
exit $failed
