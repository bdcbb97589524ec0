#!/bin/bash
# program.sh FIRSTBAD_GPT MPIRUN: the trainer as a program: exact resume, equal runs, and an orderly end on every rank.
# Prints one line a check and exits 1 if any failed.
set -u
gpt=$1
mpirun=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/firstbad-gpt-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset FIRSTBAD_INJECT FIRSTBAD_DIR FIRSTBAD_RUN_ID FIRSTBAD_ATTEMPT FIRSTBAD_ON_BAD FIRSTBAD_MAX_SKIPS
failed=0
small="--layers 2 --channels 32 --heads 2 --block 32 --log-every 0"

ranks() { "$mpirun" --oversubscribe -n "$1" "${@:2}"; }

check() { # what, then a command that must succeed
    if "${@:2}"; then
        echo "ok    $1"
    else
        echo "FAIL  $1"
        failed=1
    fi
}

expect() { # exit code, then a command; its words go to out and err
    "${@:2}" >out 2>err
    local code=$?
    [ "$code" = "$1" ] || { echo "expected exit code $1, found $code:"; cat out err; return 1; }
}

# Two ranks, dropout, two micro-steps, and a loss scale that starts too high: what a resumed run has to carry is all there. That the
# two runs agree says as well that the collective gives the same bits each time.
resumed() {
    local options="$small --precision fp16 --dropout 0.1 --accum 2 --steps 12 --loss-scale 1048576 --scale-growth-interval 3"
    expect 0 ranks 2 "$gpt" $options --save-every 6 --out straight || return 1
    expect 0 ranks 2 "$gpt" $options --save-every 6 --out again --resume straight/step-000006.safetensors || return 1
    cmp straight/step-000012.safetensors again/step-000012.safetensors || return 1
    ! cmp -s straight/step-000006.safetensors straight/step-000012.safetensors
}

# Rotation deletes by name; what was committed last stays reachable, and "latest" is it. The newest file is not asked.
rotates_and_resumes_from_the_latest() {
    local options="$small --seed 5" code=0
    expect 0 ranks 2 "$gpt" $options --steps 8 --save-every 2 --keep 2 --out kept || return 1
    [ "$(ls kept)" = "$(printf 'step-%06d.safetensors\n' 6 8)" ] || { ls kept; return 1; }
    FIRSTBAD_ON_BAD=observe expect 0 ranks 2 "$gpt" $options --steps 16 --save-every 2 --keep 2 --out kept --resume latest \
        --inject 'label-zero@step=9,rank=1,site=tokens' || return 1
    [ ! -e kept/step-000008.safetensors ] && [ -e kept/step-000016.safetensors ] || { ls kept; return 1; }
    expect 0 ranks 2 "$gpt" $options --log-every 1 --steps 10 --out kept --resume latest || return 1
    grep -q '^step 9 ' out && ! grep -q '^step 8 \|^step 17 ' out
}

# One name for all: the one that is being replaced is kept until the next is committed, and a save that is torn loses nothing.
saves_over_one_name() {
    local options="$small --seed 6 --save-name ckpt.safetensors --out one"
    expect 0 ranks 2 "$gpt" $options --steps 6 --save-every 2 || return 1
    [ "$(ls one)" = ckpt.safetensors ] || { ls one; return 1; }
    truncate -s 1000 one/ckpt.safetensors
    expect 3 ranks 2 "$gpt" $options --steps 8 --resume one/ckpt.safetensors || return 1
    grep -q '^firstbad-gpt: checkpoint one/ckpt.safetensors is refused: ' err || return 1
    [ "$(grep -c refused err)" = 1 ]
}

# What is bad in memory is not written: nothing is saved at step 6, and the next vote hears of it.
bad_state_is_not_saved() {
    FIRSTBAD_ON_BAD=skip expect 1 ranks 2 "$gpt" $small --check-state none --steps 12 --save-every 3 --out gate \
        --inject 'moment-nan@step=6,rank=0,site=ln_f.weight.exp_avg,index=7' || return 1
    [ -e gate/step-000003.safetensors ] && [ ! -e gate/step-000006.safetensors ] && grep -q 'the checkpoint must not be written' err
}

# A skipped update leaves parameters and moments as the checkpoint before it has them: only the step has moved on.
skip_changes_nothing() {
    expect 0 ranks 2 "$gpt" $small --steps 5 --save-every 1 --out skip --inject grad-nan@step=5,rank=1 || return 1
    [ "$(cmp -l skip/step-000004.safetensors skip/step-000005.safetensors | wc -l)" = 1 ]
}

evidence_lost() {
    FIRSTBAD_DIR=/dev/null/runs expect 1 ranks 2 "$gpt" $small --steps 9 --inject 'grad-nan@step=3-9,rank=1' || return 1
    [ "$(grep -c '^firstbad-gpt: halted by firstbad at step 6' err)" = 1 ] && [ "$(grep -c 'records of evidence were lost' err)" = 2 ]
}

halts() {
    expect 1 ranks 2 "$gpt" $small --steps 9 --inject 'grad-nan@step=3-9,rank=1' || return 1
    [ "$(grep -c '^firstbad-gpt: halted by firstbad at step ' err)" = 1 ]
}

overflow_in_the_sum() {
    expect 0 ranks 2 "$gpt" $small --precision bf16 --steps 5 --log-every 1 --gradient-blowup 3 || return 1
    grep -q '^step 3 .* skipped$' out && [ "$(grep -c skipped out)" = 1 ]
}

activations_overflow() {
    expect 1 ranks 2 "$gpt" $small --precision fp16 --loss-scale 64 --steps 40 --log-every 1 --activation-gain 8 --check forward || return 1
    grep -q '^step [1-9]* loss nan norm - .* skipped$' out
}

unguarded() {
    rm -rf firstbad-runs
    expect 0 ranks 2 "$gpt" $small --steps 3 --no-guard || return 1
    [ ! -e firstbad-runs ]
}

# From the first parameter to the last moment; what lies before are 40 bytes of counters and loss scale, which only the guard has.
same_tensors() {
    local skip=$((8 + $(od -An -t u8 -N8 "$1") + 40))
    [ "$(stat -c %s "$1")" -gt $((skip + 100000)) ] && cmp -i $skip "$1" "$2"
}

# Without the clip: its coefficient comes from the norm, which firstbad and the bare loop add up in another order (docs/format/numbers.md).
guard_changes_no_bit() {
    local options="$small --precision bf16 --accum 2 --dropout 0.1 --clip 0 --steps 8 --save-every 8"
    expect 0 ranks 3 "$gpt" $options --out guarded --check forward --check-state full || return 1
    expect 0 ranks 3 "$gpt" $options --out bare --no-guard || return 1
    same_tensors guarded/step-000008.safetensors bare/step-000008.safetensors || return 1
    ! same_tensors guarded/step-000000.safetensors guarded/step-000008.safetensors >/dev/null
}

wrong_use() {
    expect 2 "$gpt" --no-such-option && grep -q 'unknown option --no-such-option' err &&
        expect 2 "$gpt" --steps many && grep -q 'expected a whole number' err &&
        expect 2 "$gpt" --channels 30 --heads 4 && grep -q 'does not divide' err &&
        expect 3 "$gpt" --data "$folder/missing" && grep -q 'No such file' err &&
        expect 3 "$gpt" --no-guard --resume "$folder/missing" && grep -q 'No such file' err &&
        expect 0 "$gpt" --help && grep -q '^usage: firstbad-gpt' out
}

check "a resumed run continues to the same bits, loss scale included" resumed
check "rotation cannot lose the last committed checkpoint, and latest resumes from it" rotates_and_resumes_from_the_latest
check "a file that was torn while it was saved over is refused" saves_over_one_name
check "a state that is not finite is not saved" bad_state_is_not_saved
check "a skipped update changes one byte of the checkpoint, the step's number" skip_changes_nothing
check "a halt ends all ranks with code 1 and one sentence" halts
check "finite gradients whose sum overflows are skipped" overflow_in_the_sum
check "activations that grow past 65504 halt the run" activations_overflow
check "the guard changes no bit of a healthy run" guard_changes_no_bit
check "without the guard nothing is written" unguarded
check "a folder that cannot be made costs evidence, is told, and leaves the gate shut to bad updates" evidence_lost
check "wrong use is told from a missing file" wrong_use
exit $failed
