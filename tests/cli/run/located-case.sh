# A case that was located: the operator first, then why, then what was found, and all of it on less than a screen.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
train() { firstbad-gpt --steps 6 --layers 2 --channels 16 --heads 2 --block 16 --batch 2 --log-every 0 "$@"; }
# What the tool says comes last; the trainer has printed a block of its own before.
said() { grep -n '^firstbad: step' printed | tail -n 1 | cut -d: -f1 | xargs -I{} tail -n +{} printed > block; sed -n '1,/found as/p' block | sed 's/\.c:[0-9]*/.c:LINE/'; test "$(wc -l < block)" -lt 15; }
firstbad run --run-id mask -- bash -c "$(declare -f train); train --fault mask-full-row@step=3,rank=0" > printed 2>&1
said
firstbad run --run-id range -- bash -c "$(declare -f train); train --precision fp16 --loss-scale 256 --fault mlp-fp16@step=5,rank=0" > printed 2>&1
said
# Without the names of a replay: what the guard found.
firstbad run --run-id plain -- bash -c "$(declare -f train); train --locate none --fault mask-full-row@step=3,rank=0" > printed 2>&1
said | sed -e '/^  proof/,$d'
