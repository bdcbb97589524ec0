. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Memory was short in a replay: what made it is one of five, and none of them is named as the one.
make_run r1 grad-nan
write_locate r1 'd["found"] = "interval"; d["location"] = None; d["chain"] = []; d["cause"] = None; d["minimise"] = None
d["candidates"] = [link(op, f"h.{i}.mlp", "x", "forward", None, "unknown", i, None) for i, op in enumerate(["gelu", "linear", "add", "mul", "linear"])]
d["interval"] = {"first": d["candidates"][0], "last": d["candidates"][-1]}
d["notes"] = "memory was short in replay 2, so a part of the step could not be looked at"'
firstbad why
