. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# The optimizer state was bad before the step: a replay says so too, and no operator is blamed.
make_run r1 bad-moment
write_locate r1 'd["found"] = "entry"; d["minimise"] = None; d["chain"] = []
entry = link(None, "h.1.mlp", "fc.weight.exp_avg", "entry_state", None, "generate", 40, None)
d["candidates"] = [entry]
d["location"].update(operator=None, module="h.1.mlp", tensor="fc.weight.exp_avg", boundary="entry_state", source=None)
d["cause"].update({"class": "optimizer_state", "rule": "state", "lies_in": "state", "sample_id": None, "sample": None,
    "explanation": "the moment h.1.mlp fc.weight.exp_avg held NaN before the step began", "witness": None,
    "fix": "resume from a checkpoint whose optimizer state was read and found finite", "verify": "firstbad ckpt latest"})'
firstbad why
firstbad why --json >out.json || test $? = 1
json_get '[d["location"]["found"], d["location"]["origin"]["operator"], d["location"]["origin"]["direction"], d["first_bad"]["operator"], d["first_bad"]["operator_reason"]]' <out.json
