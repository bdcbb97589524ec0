#!/bin/bash
# program.sh FIRSTBAD_GPT MPIRUN [FIRSTBAD]: the trainer as a program: exact resume, equal runs, and an orderly end on every rank.
# Prints one line a check and exits 1 if any failed. Without the tool what it says of a run is not looked at.
set -u
gpt=$1
mpirun=$2
tool=${3:-}
folder=$(mktemp -d "${TMPDIR:-/tmp}/firstbad-gpt-XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset FIRSTBAD_INJECT FIRSTBAD_DIR FIRSTBAD_RUN_ID FIRSTBAD_ATTEMPT FIRSTBAD_ON_BAD FIRSTBAD_MAX_SKIPS FIRSTBAD_LOCATE FIRSTBAD_STRATEGY
unset FIRSTBAD_LEAVE_OUT FIRSTBAD_REPLAY FIRSTBAD_REPLAY_OUT FIRSTBAD_REPLAY_PARTS FIRSTBAD_REPLAY_TIMES FIRSTBAD_REPLAY_STRATEGY FIRSTBAD_REPLAY_PROBES
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

# ---- a bad update is located ----------------------------------------------------------------------------------------------------

case_of() { # name of a folder of runs: its only case
    set -- "$1"/*/cases/*
    [ $# = 1 ] && [ -d "$1" ] && echo "$1"
}

says() { # locate.json, then key and value pairs that must stand in it
    local file=$1
    shift
    while [ $# -gt 0 ]; do
        grep -q "\"$1\": \"\?$2\"\?,\?$" "$file" || { echo "expected $1 $2 in $file:"; grep "\"$1\"" "$file"; return 1; }
        shift 2
    done
}

# The same training with and without locating: an update is skipped, an operator is named, and all that follows has the same bytes.
located() { # name, ranks, operator, module, cause class, options of the program
    local name=$1 n=$2 op=$3 module=$4 class=$5 found
    shift 5
    rm -rf "$name"
    expect 0 ranks "$n" "$gpt" $small --steps 8 --save-every 8 --dir "$name/with" --out "$name/a" "$@" || return 1
    [ "$(grep -c '^firstbad: step 5 was not applied on any of ' err)" = 1 ] || { cat err; return 1; }
    grep -q '^  cost        located in [0-9.]* s, [0-9]* replays$' err || { cat err; return 1; }
    expect 0 ranks "$n" "$gpt" $small --steps 8 --save-every 8 --dir "$name/without" --out "$name/b" --locate none "$@" || return 1
    ! grep -q '^firstbad: step' err || return 1
    cmp "$name/a/step-000008.safetensors" "$name/b/step-000008.safetensors" || return 1
    found=$(case_of "$name/with") || return 1
    says "$found/locate.json" found operator operator "$op" module "$module" class "$class" faithful true || return 1
    [ -e "$found/bundle/bundle.json" ] && [ -e "$found/l3/witness.safetensors" ]
}

located_everywhere() {
    located fp32 2 div h.1.attn domain_math --fault temperature-zero &&
        located alone 1 div h.1.attn domain_math --fault temperature-zero@rank=0 &&
        located accum 2 div h.1.attn domain_math --fault temperature-zero --accum 2 --dropout 0.1 &&
        located fp16 2 linear h.1.mlp fp16_forward_overflow --precision fp16 --loss-scale 256 --fault mlp-fp16 &&
        located bf16 2 log1p_backward ln_f domain_math --precision bf16 --fault clamp-log1p-bf16 --accum 2 &&
        located sum 2 all_reduce h.1.mlp overflow --fault sum-fp32 &&
        located token 2 embedding wte token_out_of_range --fault token-unknown --strategy bisect
}

# A bad update that was written beside the state is stopped at its own step, located, and has changed nothing: what is saved after it
# is what was saved before, but for the step's number.
held_back() { # fault, found, then key and value pairs of locate.json
    local name=$1 saved=update/$1/saved
    rm -rf "update/$name"
    expect 0 ranks 2 "$gpt" $small --steps 5 --dir "update/$name/runs" --keep-state --fault "$name" --save-every 1 --out "$saved" ||
        return 1
    grep -q '^firstbad: step 5 was not applied on any of 2 ranks: a non-finite update on rank 0$' err || { cat err; return 1; }
    grep -q '^  spread      parameters: no, held back beside them   optimizer state: no$' err || { cat err; return 1; }
    says "$(case_of "update/$name/runs")/locate.json" step 5 boundary update "${@:2}" || return 1
    [ "$name" = moment-negative ] && return # this one is in the state that is saved
    [ "$(cmp -l "$saved/step-000004.safetensors" "$saved/step-000005.safetensors" | wc -l)" = 1 ]
}

located_in_the_update() {
    held_back adam-half found operator operator div class epsilon_underflow &&
        held_back adam-no-epsilon found operator operator div class epsilon_underflow &&
        held_back clip-zero-norm found operator operator div tensor clip_quotient &&
        held_back rate-nan found entry class lr_instability &&
        held_back bias-correction-zero class optimizer_state &&
        held_back moment-negative found operator operator sqrt class optimizer_state
}

# Without room for a second state it is found a step later, as a state that is bad on entry: then no operator is blamed.
found_after_the_update() {
    rm -rf update/late
    expect 0 ranks 2 "$gpt" $small --steps 6 --dir update/late --fault adam-half --max-skips 9 || return 1
    says "$(case_of update/late)/locate.json" step 6 found entry rule state
}

# Halved, and from its bundle in a fresh process, the bad update is the same one.
held_back_is_replayed() {
    rm -rf update/again && mkdir -p update/again/sweep update/again/bisect
    local found
    expect 0 ranks 2 "$gpt" $small --steps 5 --accum 2 --dir update/again/runs --keep-state --fault adam-half || return 1
    found=$(case_of update/again/runs) || return 1
    for how in sweep bisect; do
        FIRSTBAD_REPLAY_STRATEGY=$how expect 0 replay_of 2 "$found/bundle" update/again/$how --accum 2 --keep-state --fault adam-half ||
            return 1
        says update/again/$how/locate.json step 5 found operator operator div strategy $how || return 1
    done
}

# Written beside the state and then put in place: the same bits, in fp16 with a moving loss scale, skips and two micro-steps too.
holding_back_changes_no_bit() {
    local options="$small --precision fp16 --dropout 0.1 --accum 2 --steps 12 --loss-scale 1048576 --scale-growth-interval 3"
    expect 0 ranks 2 "$gpt" $options --save-every 12 --out beside --keep-state || return 1
    expect 0 ranks 2 "$gpt" $options --save-every 12 --out in-place || return 1
    cmp beside/step-000012.safetensors in-place/step-000012.safetensors
}

# One rank's optimizer fails, and the others hear of it before anything is in place. Observed, it is applied, and told.
one_rank_holds_all_back() {
    rm -rf update/one update/seen
    expect 0 ranks 4 "$gpt" $small --steps 9 --dir update/one --keep-state --replica-period 1 --fault rate-nan@rank=2 || return 1
    grep -q '^firstbad: step 5 was not applied on any of 4 ranks: a non-finite update on rank 2$' err || { cat err; return 1; }
    FIRSTBAD_ON_BAD=observe expect 0 ranks 2 "$gpt" $small --steps 5 --dir update/seen --keep-state --fault adam-half || return 1
    grep -q '^firstbad: step 5 is applied although it is bad' err || { cat err; return 1; }
    grep -q '^  spread      parameters: the update is applied$' err || { cat err; return 1; }
    says "$(case_of update/seen)/locate.json" step 5 found operator operator div
}

# Every element is finite, and the norm that the trainer would clip with is not. A norm in FP64 holds the same gradient.
norm_overflow_is_skipped_and_located() {
    rm -rf norm
    expect 0 ranks 2 "$gpt" $small --steps 6 --log-every 1 --dir norm/single --fault norm-fp32 || return 1
    grep -q '^step 5 .* skipped$' out && [ "$(grep -c skipped out)" = 1 ] || { cat out; return 1; }
    grep -q ': a norm overflow (every gradient element is finite) on rank 1$' err || { cat err; return 1; }
    says "$(case_of norm/single)/locate.json" step 5 found operator operator norm module optimizer class overflow rule range || return 1
    expect 0 ranks 2 "$gpt" $small --steps 6 --log-every 1 --dir norm/double --fault ok-gradient-large || return 1
    ! grep -q skipped out && ! grep -q '^firstbad: ' err
}

# A planted fault is in no operator: that it does not come again is what is said.
planted_does_not_come_again() {
    rm -rf planted
    expect 0 ranks 2 "$gpt" $small --steps 4 --dir planted --inject grad-nan@step=3,rank=1 || return 1
    says "$(case_of planted)/locate.json" found not_reproduced reproduced 0 attempts 3
}

# Observe lets the update pass. It is located all the same, from the state it began with.
observed_is_located() {
    rm -rf seen
    FIRSTBAD_ON_BAD=observe expect 0 ranks 2 "$gpt" $small --steps 5 --dir seen --fault temperature-zero || return 1
    grep -q '^firstbad: step 5 is applied although it is bad' err || { cat err; return 1; }
    says "$(case_of seen)/locate.json" found operator operator div module h.1.attn
}

# Two skips of a loss scale that is too high look like a gradient that is bad in any format. A replay in FP32 tells them apart.
probing_is_told_from_a_fault() {
    local options="$small --precision fp16 --log-every 1"
    rm -rf high steep
    expect 0 ranks 2 "$gpt" $options --steps 8 --dir high --loss-scale 4194304 || return 1
    [ "$(grep -c skipped out)" -ge 3 ] && ! grep -q '^firstbad: ' err && [ -z "$(case_of high)" ] || { cat out err; return 1; }
    expect 0 ranks 2 "$gpt" $options --steps 11 --dir steep --loss-scale 4096 --fault norm-slope-zero@step=8,steps=3 || return 1
    says "$(case_of steep)/verdict.json" reason persists-in-replay || return 1
    says "$(case_of steep)/locate.json" persists_fp32 true
}

tells() { # folder of a run's folder, a sentence that "why" must have in it, whatever the line breaks
    [ -z "$tool" ] || "$tool" why "$1"/* | tr -s ' \n' ' ' | grep -q "$2" || { echo "why does not say: $2"; "$tool" why "$1"/*; return 1; }
}

disagrees() { # ranks, step of the halt, reason, fault, options
    rm -rf drift
    expect 1 ranks "$1" "$gpt" $small --steps 9 --dir drift --fault "$4" "${@:5}" || return 1
    grep -q "^firstbad-gpt: halted by firstbad at step $2 on all $1 ranks" err || { cat err; return 1; }
    says "$(case_of drift)/verdict.json" step "$2" action halt reason "$3" first_rank null
}

# One bit of one parameter on one rank, or an update that one rank leaves out: every number is finite, and the next comparison of the
# ranks sees it. With four of them it can be told which is the odd one.
drifted_replicas_halt() {
    for fault in parameter-flip update-left-out; do
        disagrees 2 8 replicas $fault --replica-period 4 && tells drift 'it cannot be told which rank is wrong' || return 1
        disagrees 4 8 replicas $fault --replica-period 4 && tells drift 'the parameters of rank 1 differ from those of the other 3' ||
            return 1
    done
    [ -z "$tool" ] && return
    "$tool" export --jsonl exported drift/* >out 2>&1 || { cat out; return 1; }
    # Equal on entry to step 4 on all of them, and not on entry to step 8.
    [ "$(grep '"step":4,"moment":"replicas","equal":true' exported | wc -l)" = 4 ] &&
        [ "$(grep '"step":8,"moment":"replicas","equal":false' exported | wc -l)" = 4 ] || { grep moment exported; return 1; }
}

scales_that_differ_halt() {
    disagrees 2 5 disagree scale-on-one-rank --precision fp16 && disagrees 4 5 disagree scale-on-one-rank@rank=3 --precision fp16
}

# A sample that is to be left out is drawn no more, and all other windows are those they were.
sample_is_left_out() {
    local case_folder sample
    rm -rf poison left
    expect 0 ranks 2 "$gpt" $small --steps 6 --dir poison --out poison/out --save-every 6 --fault temperature-zero || return 1
    case_folder=$(case_of poison) || return 1
    sample=$(grep -A 1 '"sample_ids": \[' "$case_folder/locate.json" | grep -o '[0-9][0-9]*')
    [ -n "$sample" ] || { echo "no sample is named"; return 1; }
    FIRSTBAD_LEAVE_OUT=$sample expect 0 ranks 2 "$gpt" $small --steps 6 --dir left --log-every 1 || return 1
    grep -q '^left out 1 window, and drew another instead$' out || { cat out; return 1; }
    cp out without
    expect 0 ranks 2 "$gpt" $small --steps 6 --dir whole --log-every 1 || return 1
    [ "$(sed -n 's/ [0-9.]* ms$//; 1,4p' out)" = "$(sed -n 's/ [0-9.]* ms$//; 1,4p' without)" ] || { diff out without; return 1; }
    [ "$(sed -n 's/ lr .*//; 5p' out)" != "$(sed -n 's/ lr .*//; 5p' without)" ]
}

replay_of() { # ranks, bundle, folder for the answer, options
    local n=$1 bundle=$2 out=$3
    shift 3
    mkdir -p "$out"
    FIRSTBAD_REPLAY=$bundle FIRSTBAD_REPLAY_OUT=$out ranks "$n" "$gpt" $small "$@"
}

replays_a_bundle() {
    local options="--precision fp16 --loss-scale 256 --batch 4 --accum 2 --dropout 0.1 --fault mlp-fp16@rank=1" found
    rm -rf bundled again && mkdir again
    expect 0 ranks 2 "$gpt" $small --steps 6 --dir bundled $options || return 1
    found=$(case_of bundled) || return 1
    says "$found/locate.json" rows_needed 1 || return 1
    # In a fresh process, on as many ranks, on one, on more, and from the smallest batch alone; halving comes to the same.
    for n in 2 1 3; do
        expect 0 replay_of $n "$found/bundle" again/$n $options || return 1
        says again/$n/locate.json found operator operator linear module h.1.mlp reproduced 3 attempts 3 || return 1
    done
    says again/2/locate.json faithful true && says again/1/locate.json faithful false || return 1
    grep -q '"2 ranks became 1"' again/1/locate.json || return 1
    FIRSTBAD_REPLAY_STRATEGY=bisect expect 0 replay_of 2 "$found/bundle-min" again/min $options || return 1
    says again/min/locate.json found operator operator linear module h.1.mlp strategy bisect || return 1
    # The same question in another format is a difference, and here a fault that is not there.
    expect 0 replay_of 2 "$found/bundle" again/bf16 $options --precision bf16 || return 1
    says again/bf16/locate.json found not_reproduced faithful false || return 1
    # Another shape is wrong use; bytes that changed are refused.
    expect 2 replay_of 2 "$found/bundle" again/shape $options --channels 64 && grep -q 'captured with channels 32' err || return 1
    printf x | dd of="$found/bundle/batch-r00001.safetensors" bs=1 seek=400 conv=notrunc 2>/dev/null
    expect 3 replay_of 2 "$found/bundle" again/torn $options && grep -q 'batch-r00001.safetensors' err
}

# A state that does not fit is referred to by its checkpoint, and read from there.
replays_from_a_checkpoint() {
    local options="--layers 6 --channels 96 --batch 1 --fault temperature-zero@step=5" found
    rm -rf large again && mkdir again
    expect 0 ranks 2 "$gpt" $small $options --steps 5 --dir large --bundle-max 1 --save-every 4 --out large/saved || return 1
    found=$(case_of large) || return 1
    [ ! -e "$found/bundle/state-r00000.safetensors" ] || { echo "the state was to be left out"; return 1; }
    expect 0 replay_of 2 "$found/bundle" again/parent $options || return 1
    says again/parent/locate.json found operator operator div faithful true
}

wrong_use() {
    expect 2 "$gpt" --no-such-option && grep -q 'unknown option --no-such-option' err &&
        expect 2 "$gpt" --steps many && grep -q 'expected a whole number' err &&
        expect 2 "$gpt" --channels 30 --heads 4 && grep -q 'does not divide' err &&
        expect 3 "$gpt" --data "$folder/missing" && grep -q 'No such file' err &&
        expect 3 "$gpt" --no-guard --resume "$folder/missing" && grep -q 'No such file' err &&
        expect 2 "$gpt" --locate everything && grep -q 'expected all, none, or words' err &&
        FIRSTBAD_STRATEGY=guess expect 2 "$gpt" && grep -q 'FIRSTBAD_STRATEGY' err &&
        expect 2 "$gpt" --fault no-such-fault &&
        expect 0 "$gpt" --fault list && grep -q 'mask-full-row' out &&
        expect 0 "$gpt" --fault truths && grep -q '^{"name":"parameter-flip",.*"seen":"disagreement"' out && ! grep -qv '^{.*}$' out &&
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
check "an operator is named, in every format, and training goes on to the same bytes" located_everywhere
check "an update that is bad is stopped at its own step, named, and changes nothing where it is held back" located_in_the_update
check "an update in place is found a step later, and no operator is blamed" found_after_the_update
check "a bad update is replayed from its bundle, swept and halved" held_back_is_replayed
check "holding updates back changes no bit" holding_back_changes_no_bit
check "one rank's bad update is held back on all; observed, it is applied and told" one_rank_holds_all_back
check "a norm that overflows in FP32 over finite gradients is skipped and named" norm_overflow_is_skipped_and_located
check "a planted fault does not come again, and that is said" planted_does_not_come_again
check "a run that only observes is located before the update" observed_is_located
check "an overflow of the loss scale is told from a fault by a replay in FP32" probing_is_told_from_a_fault
check "replicas that drifted apart halt the run, and the odd one of four is named" drifted_replicas_halt
check "ranks with different loss scales halt the run" scales_that_differ_halt
check "a sample that is left out is not drawn, and the others are" sample_is_left_out
check "a bundle replays in a fresh process, on other numbers of ranks, and not when it was changed" replays_a_bundle
check "a bundle without the state replays from its checkpoint" replays_from_a_checkpoint
check "wrong use is told from a missing file" wrong_use
exit $failed
