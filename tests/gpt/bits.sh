#!/bin/sh
# bits.sh QUICK PLAIN: two builds of the model train a few steps in each precision; their parameters must have equal bits.
set -eu
quick=$("$1")
plain=$("$2")
[ -n "$quick" ] || { echo "FAIL $1 printed nothing"; exit 1; }
failed=0
for precision in fp32 bf16 fp16; do
    one=$(echo "$quick" | grep "^$precision ") || one=missing
    other=$(echo "$plain" | grep "^$precision ") || other=absent
    if [ "$one" = "$other" ]; then echo "ok $precision: builds of two optimisation levels agree: $one"
    else echo "FAIL $precision: $one against $other"; failed=1; fi
done
exit "$failed"
