. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan-halt
write_locate r1
firstbad why --json >out.json || test $? = 1
json_get '{k: d["first_bad"][k] for k in ("module", "tensor", "operator", "operator_module", "operator_reason", "source")}' <out.json
json_get '{k: v for k, v in d["location"].items() if k != "chain"}' <out.json
json_get '[[l["operator"], l["label"]] for l in d["location"]["chain"]]' <out.json
json_get '{k: v for k, v in d["replay"].items() if k != "recorded"}' <out.json
json_get 'd["cause"]' <out.json
json_get '{k: d["recovery"][k] for k in ("skip_samples", "skip_samples_reason", "leave_out")}' <out.json
