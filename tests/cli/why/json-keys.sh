. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# The keys that docs/format/json.md promises, and nothing that strict JSON does not know.
make_run r1 grad-nan
firstbad why --json >out.json || test $? = 1
json_get 'sorted(set("schema status run case first_bad first_bad_set spread decision replay recovery cause witness coverage proof".split()) - set(d))' <out.json
json_get '[d["schema"], d["status"]]' <out.json
json_get '{k: d["first_bad"][k] for k in ("attempt", "step", "micro_step", "rank", "host", "boundary", "module", "tensor", "operator", "kind", "count", "index", "dtype", "source", "bits")}' <out.json
json_get '[d["spread"][k] for k in ("collective", "optimizer_state", "parameters", "checkpoints")]' <out.json
json_get '{k: d["decision"][k] for k in ("action", "agreement", "unanimous", "ranks", "agreed")}' <out.json
json_get '{k: d["replay"][k] for k in ("bundle", "attempts", "reproduced", "faithful", "differences")}' <out.json
json_get '{k: d["recovery"][k] for k in ("resume_from", "blocked", "skip_samples")}' <out.json
json_get '{k: d["cause"][k] for k in ("class", "fix", "verify")}' <out.json
json_get 'd["coverage"]["boundaries"]["local_gradient"]' <out.json
json_get 'len(d["first_bad_set"])' <out.json
