"""What the tests of strangers assert."""
from __future__ import annotations

import os
import re
import subprocess

import pytest
from stranger_runs import BUILD, Done, Pool, Stranger, disagreements, run
from stranger_truths import FRAMEWORKS, LOOPS

SLOW = bool(os.environ.get("FIRSTBAD_SLOW"))
KINDS = {"test_healthy": ("plain", "healthy"), "test_fault": ("faulty",), "test_halt": ("halted",), "test_truth": ("broken",)}


def parameter(stranger: Stranger):
    """For parametrize; what needs a package that is not there is skipped, and says so."""
    marks = [pytest.mark.skip(reason=f"{name} is not installed") for name in stranger.missing]
    return pytest.param(stranger, id=stranger.name, marks=marks)


def named(name: str) -> Stranger:
    return next(s for s in LOOPS + FRAMEWORKS if s.name == name)


def announce(pool: Pool, items, module: str) -> None:
    """Start what the selected tests of a module will ask for, so that two runs are always under way."""
    for item in items:
        if item.module.__name__ != module or any(item.iter_markers("skip")):
            continue
        call = getattr(item, "callspec", None)
        if call is None or "stranger" not in call.params:
            continue
        if any(mark.args and mark.args[0] for mark in item.iter_markers("skipif")):
            continue
        for kind in KINDS.get(item.originalname.split("__")[0], ()):
            pool.announce(call.params["stranger"], kind)


def gated(why) -> None:
    """Every update that was applied was gated on every rank, and the loss and all gradients were looked at."""
    cover = why["coverage"]
    assert cover["updates_applied"] == cover["steps"] * why["run"]["ranks"] > 0, cover
    assert cover["updates_gated"] == cover["updates_applied"], cover
    for boundary in ("loss", "reduced_gradient"):
        assert cover["boundaries"][boundary]["level"] == "full", cover
    assert cover["boundaries"]["update"]["level"] in ("full", "sampled"), cover


def healthy(pool: Pool, stranger: Stranger) -> None:
    plain, guarded = pool.get(stranger, "plain"), pool.get(stranger, "healthy")
    assert plain.code == 0, plain.err[-2000:]
    assert guarded.code == 0, guarded.err[-2000:]
    assert guarded.lines() == plain.lines()
    assert plain.parameters(), plain.out
    assert "firstbad" not in guarded.err, guarded.err
    why = guarded.why()
    assert why["status"] == "clean", why
    gated(why)
    assert why["run"]["ranks"] == stranger.ranks


def agrees(stranger: Stranger, done: Done, why) -> None:
    """What is said is true. What is known not to be said right yet is an expected failure, and nothing else is excused by it; once it is
    right the entry in stranger_truths.py has to go."""
    told = disagreements(stranger, why)
    reason, begins = stranger.not_yet
    if not reason:
        assert told == [], "\n".join(told + [done.err[-3000:]])
        return
    others = [line for line in told if not re.match(begins, line)]
    assert others == [], "\n".join(others + [done.err[-3000:]])
    assert told != [], f"this is right now, take it out of stranger_truths.py: {reason}"
    pytest.xfail(reason)


def faulty(pool: Pool, stranger: Stranger) -> None:
    done = pool.get(stranger, "faulty")
    why = done.why()
    if stranger.truth.halts:
        assert done.code == 86, (done.code, done.err[-2000:])
        agrees(stranger, done, why)
        return
    assert done.code == 0, (done.code, done.err[-2000:])
    parameters = done.parameters()
    assert len(parameters) == stranger.ranks and len(set(parameters)) == 1, parameters
    assert "NOT FINITE" not in parameters[0], parameters
    assert why["spread"]["parameters"] is False and why["spread"]["optimizer_state"] is False, why["spread"]
    agrees(stranger, done, why)


def halted(pool: Pool, stranger: Stranger) -> None:
    done = pool.get(stranger, "halted")
    assert done.code == 86, (done.code, done.err[-2000:])
    why = done.why()
    assert why["decision"]["action"] == "halt" and why["run"]["exit"]["halted"]
    assert not done.parameters(), "the script went on to its end"
    agrees(stranger, done, why)


def broken(pool: Pool, stranger: Stranger) -> None:
    done = pool.get(stranger, "broken")
    assert done.code == stranger.plain_ends, done.err[-2000:]
    if stranger.poisons and stranger.plain_ends == 0:
        assert all("NOT FINITE" in line for line in done.parameters()), done.parameters()


def resume_nanogpt(folder) -> None:
    stranger = named("nanogpt")
    more = ("--out", "ckpt", "--steps", "8")
    first = run(stranger, folder, True, True, ("--run-id", "r"), more)
    assert first.code == 0, first.err[-2000:]
    recovery = first.why()["recovery"]
    assert recovery["resume_from"] == str(folder / "ckpt" / "ckpt.pt") and recovery["blocked"] == [], recovery
    second = run(stranger, folder, True, False, ("--run-id", "r"), more + ("--resume",))
    assert second.code == 0, second.err[-2000:]
    assert re.search(r"iter 8: loss", second.out) and "NOT FINITE" not in second.out
    latest = subprocess.run([str(BUILD / "firstbad"), "ckpt", "latest", str(folder / "ckpt")], stdout=subprocess.PIPE, timeout=60)
    assert latest.returncode == 0 and latest.stdout.decode().strip() == str(folder / "ckpt" / "ckpt.pt"), latest


def shifted_ids(folder) -> None:
    """One id of 65535 where the table has 32 rows: torch raises, and the message says which id, of which row, before it does."""
    done = run(named("nanogpt"), folder, True, True, bug_name="shifted")
    assert done.code not in (0, 86), done.code
    assert "65535" in done.err and "IndexError" in done.err, done.err[-2000:]
    first = done.why()["first_bad"]
    assert first["step"] == 5 and first["micro_step"] == 1 and first["kind"] == "out_of_range" and first["value"] == 65535
    assert first["index"] in ([3, 7], [3 * 16 + 7]) and first["allowed"] == [0, 31] and first["field"] == "tokens", first


def resume_trainer(folder) -> None:
    stranger = named("hf-gpt2")
    if stranger.missing:
        pytest.skip(f"{stranger.missing[0]} is not installed")
    more = ("--save-steps", "4", "--out", "out")
    parts = (more + ("--steps", "4"), more + ("--resume",))
    plain = [run(stranger, folder / "plain", False, False, (), part) for part in parts]
    guarded = [run(stranger, folder / "guarded", True, False, ("--run-id", "r"), part) for part in parts]
    for theirs, ours in zip(plain, guarded):
        assert theirs.code == 0 and ours.code == 0, theirs.err[-2000:] + ours.err[-2000:]
        assert ours.lines() == theirs.lines() != []
    why = guarded[1].why()
    assert why["status"] == "clean" and why["recovery"]["resume_from"].endswith("checkpoint-10"), why["recovery"]
