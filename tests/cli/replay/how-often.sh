# 0 of n, k of n, never looked at; faithful or not.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
make_case c 2 412 ./trainer
try() { answer "$1"; replay c -- ./trainer | sed '/results/d; /^  ran/d'; }
try 'd["replay"].update(reproduced=0, persists_fp32=None, other_ranks={"tried": 0, "bad": 0})'
try 'd["replay"].update(reproduced=2, attempts=5, persists_fp32=False, other_ranks={"tried": 3, "bad": 0}); d["world"] = 4'
try 'd["replay"].update(reproduced=3, persists_fp32=None, faithful=False, other_ranks={"tried": 3, "bad": 1},
     differences=["4 ranks became 1", "another build: 3f9c1e2 became 77aa001"])'
try 'd["replay"].update(reproduced=0, attempts=0); d["found"] = "undecided"; d["location"] = None; d["notes"] = "no memory for a replay"'
