"""A part of the fault benchmark (bench/faults) under the real command: every field of the truth, nothing else claimed, healthy
scripts left alone. FIRSTBAD_BENCHMARK=all runs all of it, FIRSTBAD_BENCHMARK="047 049" those whose names hold one of the words."""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("tomllib", reason="the truth is written in TOML, which Python reads from 3.11 on")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "faults"))

import judge  # noqa: E402
import runs  # noqa: E402
from truth import Case, load  # noqa: E402

COMMAND = os.path.join(os.environ.get("FIRSTBAD_BUILD", os.path.join(ROOT, "build")), "firstbad")
PACKAGE = os.path.join(ROOT, "python", "firstbad")
FEW = ["001", "006", "013", "016", "021", "024", "029", "035", "042", "044", "049", "060", "201", "203", "206", "208", "213", "226"]

_wanted = os.environ.get("FIRSTBAD_BENCHMARK", "")
CASES = [case for case in (load() if _wanted == "all" else load(_wanted.split() or FEW)) if case.kind in ("fault", "healthy")]


@pytest.fixture(scope="module")
def started(request):
    """Every chosen script, two at a time: (under firstbad, alone or None)."""
    names = {
        item.callspec.params["case"].name
        for item in request.session.items
        if item.module is request.module and hasattr(item, "callspec")
    }
    jobs: dict[str, Future] = {}

    def both(case: Case):
        plain = runs.start(case, "plain", sys.executable, COMMAND, PACKAGE) if case.kind == "healthy" else None
        return runs.start(case, "firstbad", sys.executable, COMMAND, PACKAGE), plain

    with ThreadPoolExecutor(2) as pool:
        for case in CASES:
            if case.name in names and not (case.needs and not runs.has(sys.executable, case.needs)):
                jobs[case.name] = pool.submit(both, case)
        yield jobs
        for job in jobs.values():
            job.cancel()


def scored(case: Case, started) -> judge.Score:
    if case.name not in started:
        pytest.skip(f"{case.needs} is not installed")
    seen, plain = started[case.name].result()
    score = judge.firstbad(case, seen, plain)
    score.said += f"\n{seen.err[-3000:]}"  # what a person would have read, when this fails
    return score


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "fault"], ids=lambda case: case.name)
def test_fault__is_withheld_and_named_in_full(case, started):
    score = scored(case, started)
    missing = [level for level, value in score.levels.items() if value is False]
    assert not missing and not score.wrong, f"{case.what}\nmissing {missing}\nwrong {score.wrong}\n{score.said}"


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "healthy"], ids=lambda case: case.name)
def test_healthy__is_left_alone(case, started):
    score = scored(case, started)
    assert score.alarm is None, f"{case.what}\n{score.alarm}\n{score.said}"


def test_judge__a_wrong_answer_is_not_right():
    """The judge itself can fail: answers that are right but for one thing."""
    case = next(case for case in load(["022"]))
    right = {
        "status": "case",
        "case": {"step": 3},
        "first_bad": {"step": 3, "rank": 0},
        "cause": {"class": "mask_full_row", "certain": True},
        "location": {
            "found": "operator",
            "origin": {
                "operator": "softmax",
                "node": None,
                "module": "blocks.0.attn",
                "boundary": "forward",
                "source": f"{case.name}.py:{case.lines[0]}",
                "micro_step": 0,
                "rank": 0,
            },
        },
    }
    look = {"kind": "backward", "digest": "a", "bad": []}
    ranks = {0: {"events": [look] * 5 + [dict(look, kind="exit")], "error": None}}

    def judged(**changes) -> judge.Score:
        why = {**right, **{key: value for key, value in changes.items() if key in right}}
        why["location"] = dict(
            why["location"], origin=dict(why["location"]["origin"], **{k: v for k, v in changes.items() if k not in right})
        )
        return judge.firstbad(case, runs.Seen(0, "", "", 1.0, ranks, {"guarded": True}, why), None)

    assert judged().exact
    assert not judged(first_bad={"step": 4, "rank": 0}).exact
    assert judged(operator="matmul").wrong and judged(module="blocks.1.attn").wrong and judged(source="other.py:1").wrong
    assert judged(boundary="loss").wrong and judged(cause={"class": "kernel_bug", "certain": True}).wrong
    assert not judged(cause={"class": "kernel_bug", "certain": False}).exact
    ranks[0]["events"][4] = dict(look, digest="b")
    assert judged().levels["stopped"] is False
