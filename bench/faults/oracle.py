#!/usr/bin/env python3
"""Does the truth hold? Asked of PyTorch alone; nothing of firstbad takes part.

    oracle.py [--python PYTHON] [part of a name ...]

Of a fault: with the script's own text, the first operator that makes a non-finite number of finite ones (or NaN of numbers that are
none), in all of the run, does so in the step, at the line and in the module of the truth, and is one of its operators; an entry is
seen in the state, or is made by no operator at all. With the repair of truth.toml (one piece of text replaced) no operator makes
such a number any more, and no state is bad. Of a fault that stays finite and of a healthy script: no state is bad at the end that was
not bad from the start. Exit code 0 when all of it holds.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Tuple

import runs
from truth import Case, load, normal


def made(seen: runs.Seen, case: Case) -> List[Tuple[int, int, Dict[str, Any]]]:
    """(step, rank, event) of operators that made something bad, in their order."""
    found = []
    for rank, story in sorted(seen.ranks.items()):
        backwards = steps = 0
        for event in story["events"]:
            backwards += event["kind"] == "backward"
            steps += event["kind"] == "step"
            if event["kind"] in ("op", "nan"):
                late = event["phase"] in ("backward", "update")
                step = (steps - 1) if case.count_by == "step" else (backwards - (1 if late else 0)) // case.per_step
                found.append((step, rank, event))
    return found


def settle(story: Dict[str, Any]) -> List[str]:
    """Names of tensors that are bad at the end and were not at the first look."""
    looks = [event for event in story["events"] if "bad" in event]
    return sorted(set(looks[-1]["bad"]) - set(looks[0]["bad"]))


def check(case: Case, python: str) -> List[str]:
    """Sentences about what does not hold."""
    wrong: List[str] = []
    seen = runs.start(case, "oracle", python, "", "", quick=True)
    if not seen.ranks:
        return [f"left nothing behind: exit {seen.code}: {seen.err.strip()[-300:]}"]
    events = [
        item
        for item in made(seen, case)
        if normal(item[2]["op"]) not in [normal(name) for name in case.legal] or item[0] >= case.number
    ]
    if case.kind == "healthy" or (case.kind == "finite" and not case.raises):
        if seen.code:
            wrong.append(f"exit {seen.code}: {seen.err.strip()[-200:]}")
        wrong += [f"rank {rank}: bad at the end: {settle(story)}" for rank, story in seen.ranks.items() if settle(story)]
        return wrong
    if case.kind == "fault":
        wrong += place(case, seen, events)
        shown = any(word in seen.out.lower() for word in ("nan", "inf\n", "inf ", "'loss': '0'")) or any(
            settle(story) for story in seen.ranks.values()
        )
        if not (shown or case.raises or case.entry or case.handled or "GradScaler" in case.text):
            wrong.append("neither a loss nor the state is ever bad")
    if case.repair:
        old, new = case.repair
        text = case.text
        if text.count(old) < 1:
            return wrong + [f"the repair does not fit: {old!r} is not in the script"]
        mended = runs.start(case, "oracle", python, "", "", text.replace(old, new), quick=True)
        bad = [name for story in mended.ranks.values() for name in settle(story)]
        bad += [
            f"{name} (from the start)"
            for story in mended.ranks.values()
            for name in story["events"][0].get("bad", [])
            if case.entry == "entry_state"
        ]
        rest = [item for item in made(mended, case) if normal(item[2]["op"]) not in [normal(name) for name in case.legal]]
        if mended.code or bad or [item for item in rest if item[2]["phase"] == "update" and case.count_by != "step"]:
            made_still = [(item[0], item[2]["op"], item[2]["lines"][:1]) for item in rest][:3]
            wrong.append(f"repaired, and not healthy: exit {mended.code}, bad {bad[:3]}, {made_still} {mended.err.strip()[-200:]}")
        if [item for item in rest if item[2]["phase"] == "forward"] and case.direction != "backward" and not wrong:
            wrong.append(f"repaired, and still {[(i[0], i[2]['op'], i[2]['lines'][:1]) for i in rest][:3]}")
    return wrong


def place(case: Case, seen: runs.Seen, events: List[Tuple[int, int, Dict[str, Any]]]) -> List[str]:
    wrong: List[str] = []
    if case.raises:
        if not seen.code or case.raises not in seen.err:
            wrong.append(f"should raise {case.raises}, exit {seen.code}")
        if not case.operator or not events:
            count = max(sum(event["kind"] == "backward" for event in story["events"]) for story in seen.ranks.values())
            if count != case.number * case.per_step:
                wrong.append(f"raised after {count} backwards")
            return wrong
    if case.entry == "entry_state":
        holders = [
            rank
            for rank, story in seen.ranks.items()
            if story["events"][0].get("bad") or any(e.get("bad") for e in story["events"][:3])
        ]
        if not holders or (case.rank is not None and holders != [case.rank]):
            wrong.append(f"bad at the start on ranks {holders}")
        return wrong
    if case.entry == "input":
        early = [item for item in events if item[2]["kind"] == "op"]
        if early:
            wrong.append(f"an operator made it: {early[0][2]['op']} at {early[0][2]['lines'][:1]}")
        reads = []
        for story in seen.ranks.values():
            backwards = 0
            for event in story["events"]:
                backwards += event["kind"] == "backward"
                if event["kind"] == "read" and event["phase"] == "forward":
                    reads.append(backwards // case.per_step)
        ahead = 1 if "accelerate" in case.text or "lightning" in case.text else 0  # these fetch a batch before it is its turn
        if not reads or not case.number - ahead <= min(reads) <= case.number:
            wrong.append(f"first read in step {min(reads) if reads else None}")
        return wrong
    if not events:
        if normal(case.operator[0]) in ("empty", "newempty") or case.direction == "collective" or case.scalar:
            return wrong  # the dispatch mode does not tell memory that was never written, nor what came from others
        return ["no operator made anything bad"]
    on = [item for item in events if case.rank is None or item[1] == case.rank]
    if not on:
        return [f"made on rank {events[0][1]} alone"]
    step, rank, event = on[0]
    if case.rank is not None and any(item[0] <= case.number for item in events if item[1] != case.rank):
        wrong.append("another rank made it too")
    if step != case.number:
        wrong.append(f"made in step {step}")
    names = {normal(event["op"]), normal(event["node"] or "")}
    if not names & {normal(name) for name in case.operator}:
        wrong.append(f"made by {event['op']} in {event['node']}")
    if case.lines and not (set(event["lines"][:2]) & set(case.lines)):
        wrong.append(f"made at line {event['lines'][:2]}, marked are {case.lines}")
    if (
        case.source_in
        and not any(file.split(":")[0] in case.source_in for file in event["files"])
        and "loss_utils.py" not in case.source_in
    ):
        wrong.append(f"made in {event['files']}")
    modules = {re.sub(r"^(_orig_mod|module)(\.|$)", "", name) for name in event["module"].split("|")}
    if case.module and not modules & set(case.module) and event["phase"] != "update":
        wrong.append(f"made in module {sorted(modules)}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    os.environ.pop("FIRSTBAD_RUN_ID", None)
    cases = load(options.only)
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for case, wrong in zip(cases, pool.map(lambda case: check(case, options.python), cases)):
            failed += bool(wrong)
            for sentence in wrong:
                print(f"{case.name}: {sentence}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
