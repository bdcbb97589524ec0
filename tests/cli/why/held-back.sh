# An update that was held back beside the state is no part of it; one that was put in place, and found later, is. And a norm is no
# gradient.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
train() { (mkdir "$1"; cd "$1"; shift; firstbad-gpt --steps 7 --layers 3 --channels 32 --block 16 --batch 4 --locate none "$@" > out 2>&1); }
train held --keep-state --fault adam-half
train late --fault adam-half
train norm --fault norm-fp32@rank=0
for run in held late norm; do
    echo "$run"
    (cd $run; firstbad why > text || true; tr '\n' ' ' < text | tr -s ' ' | grep -o 'What happened: .* The update was [a-z]*')
    (cd $run; firstbad why --json > json || true)
    json_get '[d["spread"][k] for k in ("collective", "parameters", "optimizer_state")]' < $run/json
    json_get '[d["spread"]["evidence"]["parameters"].split(" (")[0], d["first_bad"]["step"], d["first_bad"]["step_min"], d["first_bad"]["boundary"]]' < $run/json
    json_get '[d["cause"]["class"], d["cause"]["explanation"], d["recovery"]["skip_samples_reason"]]' < $run/json
done
