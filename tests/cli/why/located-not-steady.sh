. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 two-ranks
write_locate r1 'd["found"] = "not_steady"; d["location"] = None; d["chain"] = []; d["cause"] = None; d["minimise"] = None
d["replay"].update(reproduced=1, attempts=3, faithful=False, persists_fp32=None,
    differences=["4 ranks became 1", "input.weight changed between replays"], other_ranks={"tried": 3, "bad": 0})'
firstbad why
