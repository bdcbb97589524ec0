# The table and its facts, against numbers that are known because they were planted here.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
PYTHONPATH=$FIRSTBAD_SOURCE/tests/cli/scan python3 -B -c '
from struct import pack
from _make import make
nan, inf = float("nan"), float("inf")
make("a.safetensors", {
    "h.0.attn.weight": ("F32", [2, 4], pack("<8f", -2, 0.5, 0, 1e-40, 1, 1.5, -0.25, 3)),
    "optimizer.exp_avg_sq.h.0.attn.weight.and.a.name.that.is.much.longer.than.any.table.would.like.to.have": ("F32", [4], pack("<4f", 1e-9, nan, -inf, 2e38)),
    "h.0.mlp": ("F16", [2], pack("<2e", 60000, -1)),
    "quantised": ("F8_E4M3", [4], bytes([0x7e, 0xfe, 0x38, 0])),
    "steps": ("I64", [1], bytes(8)),
    "none": ("F32", [0, 3], b"")})'
firstbad scan --stats a.safetensors || echo "exit $?"
LC_ALL=C firstbad scan --stats a.safetensors | grep -n "@" | head -n 2
firstbad scan --stats --sort headroom a.safetensors | sed -n '/^  tensor/,/in all/p' | grep "^[ *] [a-z]" | cut -c 3-20
firstbad scan --json --stats a.safetensors >json || test $? = 1
json_get '[[s["tensor"][:15], s["measured"]] for s in d["statistics"]]' <json
json_get '{k: v for k, v in d["statistics"][0].items() if k not in ("norm", "headroom_binades", "abs_min", "file")}' <json
json_get '[abs(d["statistics"][0]["norm"] ** 2 - 16.5625) < 1e-6, abs(d["statistics"][0]["headroom_binades"] - 126.4150) < 1e-3]' <json
json_get '[[s[k] for k in ("finite", "nan", "pos_inf", "neg_inf", "min", "max")] for s in d["statistics"][1:2]]' <json
json_get '[[s[k] for k in ("at_max", "zero", "abs_max")] for s in d["statistics"] if s["dtype"] == "F8_E4M3"]' <json
