# Sourced by the tests of replay, and of bisect on a case. ./trainer stands for a real one: it prints what it was asked, and leaves the
# locate.json that `answer` made.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
ROOT=$PWD
cat > trainer <<'TRAINER'
#!/bin/bash
echo "trainer $*"
env | grep '^FIRSTBAD_' | sort
cat
[ -e "$FIRSTBAD_REPLAY_OUT" ] && cp answer.json "$FIRSTBAD_REPLAY_OUT/locate.json"
TRAINER
chmod +x trainer
# make_case CASE WORLD STEP [COMMAND...]: a case folder that stands alone, with both bundles.
make_case() {
    local folder=$1 world=$2 step=$3
    shift 3
    "$FIRSTBAD_BUILD/tests/make-bundle" "$folder/bundle" "$world" "$step" "a1-$(printf %06d "$step")" 20417,20418 "$@"
    "$FIRSTBAD_BUILD/tests/make-bundle" "$folder/bundle-min" 1 "$step" "a1-$(printf %06d "$step")" 20417 "$@"
}
# answer [PYTHON]: answer.json, an answer as a trainer would leave it; the statements change d.
answer() {
    python3 - "${1-}" <<'PYTHON'
import json, sys
def link(op, module, tensor, label, made, reads, boundary="forward", entry=False, source="model.c:88"):
    return {"operator": op, "module": module, "tensor": tensor, "source": source, "boundary": boundary, "micro_step": 0, "label": label,
            "entry": entry, "made": made, "reads": reads}
d = {"schema": "firstbad.locate/1", "run_id": None, "case": None, "step": 412, "world": 2, "rank": 1, "precision": "fp16",
     "first_step_of_attempt": False,
     "finding": {"rank": 1, "boundary": "local_gradient", "module": "h.2.mlp", "tensor": "c_fc.weight", "micro_step": 0, "kind": "nan",
                 "tensor_id": 9},
     "found": "operator", "sentence": "softmax of h.1.attn made NaN out of finite numbers.",
     "location": {"boundary": "forward", "micro_step": 0, "rank": 1, "module": "h.1.attn", "operator": "softmax",
                  "tensor": "probabilities", "source": "model.c:88", "index": [0, 1, 3, 0], "shape": [2, 4, 8, 8], "dtype": "f32",
                  "kind": "nan", "bad": 8, "elements": 512},
     "candidates": [], "interval": None,
     "chain": [link("softmax", "h.1.attn", "probabilities", "generate", 4, None),
               link("matmul", "h.1.attn", "y", "propagate", 6, 4, source="model.c:91"),
               link("linear_backward", "h.2.mlp", "c_fc.weight", "propagate", 9, 6, "local_gradient", source="model.c:140")],
     "swallowed": [link("div", "h.0", "ratio", "generate", 2, None, source="model.c:70")],
     "replay": {"attempts": 3, "reproduced": 3, "faithful": True, "differences": [], "other_ranks": {"tried": 1, "bad": 1},
                "persists_fp32": True},
     "cause": {"class": "mask_full_row", "rule": "domain", "lies_in": "data", "certain": True,
               "explanation": "softmax over a row of only -inf is 0/0: sample 20417 has no token before its padding.",
               "witness": "the row it read holds 8 x -inf, what it made 8 x nan",
               "fix": "Drop samples without real tokens, or give fully masked rows a finite value.",
               "verify": "firstbad replay a1-000412 --batch minimal", "value": None, "limit": None, "format": None,
               "format_needed": None, "row": 3, "sample": 0, "sample_id": 20417},
     "minimise": {"state": "minimal", "rows": 2, "columns": 8, "rows_needed": 1, "rows_kept": [0], "sample_ids": [20417],
                  "tokens_needed": 8, "spans": [], "coupled": False, "tests": 3},
     "cost": {"replays": 9, "search_replays": 2, "seconds": 0.25, "strategy": "sweep"},
     "evidence": {"files": [], "sliced": 0}, "notes": None}
exec(sys.argv[1])
json.dump(d, open("answer.json", "w"))
PYTHON
}
# What changes from place to place.
here() { sed -e "s|$ROOT|HERE|g" -e 's/XXH3 0x[0-9a-f]*/XXH3 HASH/; s/found 0x[0-9a-f]*/found HASH/'; }
replay() { firstbad replay "$@" 2>&1 | here; echo "exit ${PIPESTATUS[0]}"; }
bisect() { firstbad bisect "$@" 2>&1 | here; echo "exit ${PIPESTATUS[0]}"; }
