. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# The newest faithful replay counts for how often, the most exact one for the place; one that differed from the run stands apart.
make_run r1 grad-nan-halt
write_locate r1 'd["found"] = "undecided"; d["location"] = None; d["chain"] = []; d["cause"] = None; d["minimise"] = None'
write_locate r1 'd["run_id"] = d["case"] = None; d["replay"].update(reproduced=5, attempts=5, persists_fp32=None)' replays/001
write_locate r1 'd["found"] = "nothing"; d["location"] = None; d["chain"] = []; d["cause"] = None; d["minimise"] = None
d["replay"].update(reproduced=2, attempts=4, faithful=False, differences=["4 ranks became 1"], persists_fp32=None, other_ranks={"tried": 0, "bad": 0})' replays/002
firstbad why
