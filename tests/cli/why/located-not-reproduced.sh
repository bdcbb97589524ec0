. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan
write_locate r1 'd["found"] = "not_reproduced"; d["location"] = None; d["chain"] = []; d["minimise"] = None
d["replay"].update(reproduced=0, persists_fp32=None, other_ranks={"tried": 0, "bad": 0})
d["cause"].update({"class": "transient", "rule": "not_reproducible", "lies_in": "machine", "certain": False, "sample_id": None,
    "explanation": "three replays of the same bytes were finite: a device that fails now and then, or a race", "witness": None,
    "fix": "watch rank 2: a second fault that does not come back points at its device", "verify": "firstbad replay a1-000003 --times 20"})'
firstbad why
