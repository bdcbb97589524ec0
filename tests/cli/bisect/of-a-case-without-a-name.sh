# A set, an interval, state, a batch, nothing, not steady; and an operator whose chain is not whole, which is not named.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
make_case c 1 412 ./trainer
try() { answer "$1"; bisect c | sed '/^  results/d; /^  ran/d; /^ *in HERE/d; /^  proof/d; /^  fix/d; /^  check/d; /^  elsewhere/d; /^  in fp32/d; /^  faithful/d'; }
none='d["location"] = None; d["chain"] = []; d["swallowed"] = []; d["minimise"] = None; '
two='d["candidates"] = [link("mul", "h.0.mlp", "a", "unknown", 3, None), link("exp", "h.0.mlp", "b", "unknown", 4, None)]; '
try "$none$two"'d["found"] = "interval"; d["interval"] = {"first": d["candidates"][0], "last": d["candidates"][1]}; d["cause"] = None'
try "$none$two"'d["found"] = "set"; d["cause"]["certain"] = False'
try "$none"'d["found"] = "entry"; d["location"] = None; d["cause"].update({"class": "state_bad", "explanation": "it was bad before."})
d["candidates"] = [link(None, "h.1.mlp", "c_fc.weight", "unknown", 1, None, "entry_state", True, None)]'
try "$none"'d["found"] = "not_reproduced"; d["replay"]["reproduced"] = 0; d["cause"] = None'
try "$none"'d["found"] = "not_steady"; d["replay"]["reproduced"] = 1; d["cause"] = None'
try "$none"'d["found"] = "undecided"; d["cause"] = None; d["notes"] = "no memory for a replay"'
echo "--- the chain has a hole"
try 'd["chain"][1]["reads"] = 5'
