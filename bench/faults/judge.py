"""What each tool got right, by one set of rules.

Every level is True, False, or None (not asked). Rules:

detected   the tool speaks of a fault in the step of the truth, and in no step before. A peer speaks when it ends the run with its
           own message, or leaves the update out (GradScaler); a script that dies of its fault by itself has not been told of it
           by a tool.
stopped    parameters and optimizer state after the step are those before it, bit by bit, on every rank, and no buffer has become
           bad: digests of the bench (inject/observer.py). Not asked where the script dies or skips by itself.
rank       asked where one rank of several brought it. A peer names it when it ends that rank and no other.
module     path below the root. A peer names it when its last line names it (DebugUnderflowOverflow).
operator   by docs/format/operators.md's reading of names, forward or backward form alike: SoftmaxBackward0 counts for softmax.
           Asked where an operator is to blame. Where none is (a bad batch, bad state), `entry` is asked instead: the tool says so
           and names where.
line       file and line of the call. A peer names it when the innermost frame of the traceback that it prints lies there (anomaly
           mode: of forward's traceback).
cause      one of the classes that the truth takes. domain_math, where the truth is one of its kinds (0/0 of a count), is not right,
           and no wrong claim.
samples    of the data set, exactly those.

wrong      claims that are not so: of firstbad a name, line, rank or entry that is not the truth, a cause called certain that is
           not among those of the truth, an interval or a set without the truth. Of a peer: an operator, a module or a line that
           is not the truth; its sentence ("returned nan values") is true, but leads elsewhere.
within     nobody is named, and the truth is among the places that are left.
late       a peer speaks in a later step, when the state is bad already.
alarm      of a healthy script: anything said or stopped; of firstbad also output or a digest that differs from the plain run's.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from runs import Seen, states
from truth import Case, normal

LEVELS = ["detected", "stopped", "rank", "module", "operator", "entry", "line", "cause", "samples"]
NARROWER = {"zero_denominator", "label_all_ignored", "mask_full_row", "epsilon_underflow", "fp8_scaling"}  # kinds of domain_math
ENDED = {
    "anomaly": "returned nan values",
    "clip": "non-finite, so it cannot be clipped",
    "loss": "stopping training",
    "duo": "DebugUnderflowOverflow: inf/nan detected",
}


@dataclass
class Score:
    """One case under one tool."""

    levels: Dict[str, Optional[bool]] = field(default_factory=dict)
    wrong: List[str] = field(default_factory=list)
    within: bool = False
    late: bool = False
    alarm: Optional[str] = None
    said: str = ""  # what it named, for a person

    @property
    def exact(self) -> bool:
        return all(value is not False for value in self.levels.values()) and not self.wrong


def asked(case: Case) -> Dict[str, Optional[bool]]:
    """Every level that is asked, as not reached."""
    levels: Dict[str, Optional[bool]] = {level: None for level in LEVELS}
    if case.kind == "healthy":
        return levels
    for level, wanted in (
        ("detected", True),
        ("stopped", not case.raises and not case.handled),
        ("rank", case.rank is not None),
        ("module", bool(case.module) and not case.entry),
        ("operator", bool(case.operator)),
        ("entry", bool(case.entry)),
        ("line", bool(case.lines or case.source_in)),
        ("cause", bool(case.cause)),
        ("samples", bool(case.samples)),
    ):
        levels[level] = False if wanted else None
    if case.kind == "finite":
        levels["stopped"] = None
    return levels


def stopped(case: Case, seen: Seen) -> bool:
    """See the rules above. A step that the process did not reach the end of is judged by the end."""
    if len(seen.ranks) < case.ranks and not any(story.get("error") for story in seen.ranks.values()):
        return False
    for rank in seen.ranks:
        looks = states(seen, rank, case.count_by)
        at = case.number * (1 if case.count_by == "step" else case.per_step)
        after = at + (1 if case.count_by == "step" else case.per_step)
        if at >= len(looks):
            continue
        end = looks[min(after, len(looks) - 1)]
        before = looks[max(0, at - 1)]["bad"] if at else looks[0]["bad"]
        if end["digest"] != looks[at]["digest"] or set(end["bad"]) - set(before):
            return False
    return bool(seen.ranks)


def died_at(case: Case, tool: str, seen: Seen) -> Optional[int]:
    """The step in which the process ended. DebugUnderflowOverflow raises in forward, before the observer has counted the step."""
    counts = [
        sum(event["kind"] == case.count_by for event in story["events"]) for story in seen.ranks.values() if story.get("error")
    ]
    if not counts:
        return None
    per = 1 if case.count_by == "step" else case.per_step
    return (min(counts) - (0 if tool == "duo" and case.count_by == "backward" else 1)) // per


# The tools that people use today.


def peer(case: Case, tool: str, seen: Seen) -> Score:
    """A peer of inject/observer.py, or plain: the script with what it brings itself (GradScaler, a trainer's defaults)."""
    score = Score(asked(case))
    errors = {rank: story["error"] for rank, story in seen.ranks.items() if story.get("error")}
    spoke = {rank: error for rank, error in errors.items() if tool != "plain" and ENDED[tool] in error["text"]}
    if case.kind == "healthy":
        if spoke:
            score.alarm = next(iter(spoke.values()))["text"].split("\n")[0][:100]
        return score
    levels = score.levels
    if levels["stopped"] is not None:
        levels["stopped"] = stopped(case, seen)
    if tool == "plain":
        levels["detected"] = bool("GradScaler" in case.text and levels["stopped"] and case.kind == "fault")
        return score
    if not spoke:
        return score
    at = died_at(case, tool, seen)
    levels["detected"] = at == case.number or at in case.steps_too
    if not levels["detected"]:
        score.late = at is None or at > case.number  # it names no step: to stop later is no claim that is not so
        return score
    if levels["rank"] is not None:
        levels["rank"] = sorted(spoke) == [case.rank]
        if len(spoke) < case.ranks and not levels["rank"]:
            score.wrong.append(f"rank {sorted(spoke)}")
    error = next(iter(spoke.values()))
    score.said = error["text"].split("\n")[0][:100]
    if tool == "anomaly":
        _anomaly(case, error["text"], next(iter(seen.ranks[rank]["warned"] for rank in spoke)), score)
    if tool == "duo":
        _debug_underflow_overflow(case, seen.out, score)
    return score


def _anomaly(case: Case, text: str, warned: List[str], score: Score) -> None:
    found = re.search(r"Function '(\w+)'", text)
    if found:
        right = normal(found.group(1)) in {normal(name) for name in case.operator}
        if score.levels["operator"] is not None:
            score.levels["operator"] = right
        if not right:
            score.wrong.append(f"operator {found.group(1)}")
    trace = next((warning for warning in warned if "Traceback of forward call" in warning), "")
    places = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [(file, int(line)) for file, line in places if os.path.basename(file) in (case.name + ".py", *case.source_in)]
    if own:
        right = case.is_place(*own[-1])
        if score.levels["line"] is not None:
            score.levels["line"] = right
        if not right:
            score.wrong.append(f"line {own[-1][1]}")


def _debug_underflow_overflow(case: Case, out: str, score: Score) -> None:
    names = re.findall(r"^ {10,}(\S*) ?(\w+)$", out.split("Detected inf/nan")[-1], flags=re.M)
    if not names:
        return
    path, kind = names[-1] if names[-1][1] else ("", names[-1][0])
    right = path in case.module or (not path and "" in case.module)
    if score.levels["module"] is not None:
        score.levels["module"] = right
    if score.levels["operator"] is not None:
        score.levels["operator"] = right and kind.lower() in {normal(name) for name in case.operator}
    score.said = f"{path} {kind}"
    if not right:
        score.wrong.append(f"module {path or kind}")


# firstbad.


def firstbad(case: Case, seen: Seen, plain: Optional[Seen]) -> Score:
    score = Score(asked(case))
    why, levels = seen.why or {}, score.levels
    if not seen.end or not seen.end.get("guarded"):
        score.said = f"not guarded: {(seen.end or {}).get('error') or seen.err.strip()[-150:]}"
        score.alarm = "not guarded" if case.kind == "healthy" else None
        return score
    if case.kind == "healthy":
        first = why.get("first_bad") or {}
        if why.get("status") != "clean":
            score.alarm = f"step {first.get('step')}: {first.get('tensor')}"
        elif plain and (seen.code != plain.code or (case.ranks == 1 and _lines(seen.out) != _lines(plain.out))):
            score.alarm = "the output differs"
        elif plain and any(_digests(seen, rank) != _digests(plain, rank) for rank in range(case.ranks)):
            score.alarm = "the state differs"
        return score
    if levels["stopped"] is not None:
        levels["stopped"] = stopped(case, seen)
    if why.get("status") not in ("case", "undecided") or not why.get("case"):
        return score
    first, place, cause = why.get("first_bad") or {}, why.get("location") or {}, why.get("cause") or {}
    step = first.get("step") if first.get("step") is not None else (why.get("case") or {}).get("step")
    levels["detected"] = step == case.step or step in case.steps_too or case.step < 0
    if not levels["detected"]:
        score.wrong.append(f"step {step}")
    origin = place.get("origin") or {}
    if not place and case.entry:  # nothing was replayed, and nothing need be: the finding itself says what was bad
        place, origin = {"found": "entry"}, {key: first.get(key) for key in ("module", "tensor", "boundary", "rank")}
    named = place.get("found") in ("operator", "entry") and not place.get("doubt")
    what = " ".join(str(origin.get(key)) for key in ("module", "operator", "node", "tensor", "source"))
    score.said = f"{place.get('found')}: {what} {cause.get('class')}"
    if case.kind == "finite":
        return score
    if levels["rank"] is not None:
        rank = origin.get("rank") if named else first.get("rank")
        levels["rank"] = rank == case.rank
        if not levels["rank"]:
            score.wrong.append(f"rank {rank}")
    members = place.get("candidates") or []
    if place.get("found") == "set" and members and all(_holds(case, member) and _at_place(case, member) for member in members):
        named, place, origin = (
            True,
            {"found": "operator"},
            members[0],
        )  # several operators fail by themselves, and each of them is true
    # "It was bad when it was handed over, and what made it was not watched" is everything that ran before the first forward.
    before = place.get("found") == "entry" and origin.get("boundary") == "input" and cause.get("certain") is False and not case.entry
    if before:
        score.within = True
    elif named and _is_true(case, place, origin, score):
        pass
    elif place.get("found") in ("interval", "set"):
        places = [place_ for place_ in place.get("candidates", []) if _holds(case, place_)]
        score.within = bool(places) or (place["found"] == "interval" and not place.get("candidates"))
        if not score.within:
            score.wrong.append(f"{place['found']} without the truth")
    _cause(case, why, cause, score)
    return score


def _is_true(case: Case, place: Dict[str, Any], origin: Dict[str, Any], score: Score) -> bool:
    levels = score.levels
    if case.entry:
        right = place["found"] == "entry" and origin.get("boundary") == case.entry
        right = (
            right
            and (not case.module or origin.get("module") in case.module)
            and (not case.tensor or origin.get("tensor") in case.tensor)
        )
        levels["entry"] = right
        if not right:
            score.wrong.append(f"{place['found']} {origin.get('module')} {origin.get('tensor') or origin.get('operator')}")
        return right
    names = {normal(origin.get("operator") or ""), normal(origin.get("node") or "")}
    for level, right in (
        ("operator", place["found"] == "operator" and bool(names & {normal(name) for name in case.operator})),
        ("module", origin.get("module") in case.module),
    ):
        if levels[level] is not None:
            levels[level] = right
            if not right:
                score.wrong.append(
                    f"{level} {origin.get('module') if level == 'module' else origin.get('operator') or place['found']}"
                )
    source = origin.get("source")
    if levels["line"] is not None:
        levels["line"] = bool(source) and case.is_place(*_split(source))
        if source and not levels["line"]:
            score.wrong.append(f"line {source}")
    if case.boundary and origin.get("boundary") not in case.boundary:
        score.wrong.append(f"boundary {origin.get('boundary')}")
    if case.micro is not None and origin.get("micro_step") != case.micro:
        score.wrong.append(f"micro-step {origin.get('micro_step')}")
    return levels["operator"] is not False


def _holds(case: Case, place: Dict[str, Any]) -> bool:
    if case.entry:
        return place.get("boundary") == case.entry
    return normal(place.get("operator") or "") in {normal(name) for name in case.operator} and (
        not case.module or place.get("module") in case.module
    )


def _at_place(case: Case, place: Dict[str, Any]) -> bool:
    return not (case.lines or case.source_in) or (bool(place.get("source")) and case.is_place(*_split(place["source"])))


def _cause(case: Case, why: Dict[str, Any], cause: Dict[str, Any], score: Score) -> None:
    levels = score.levels
    if levels["cause"] is not None:
        levels["cause"] = cause.get("class") in case.cause
        wider = cause.get("class") == "domain_math" and bool(set(case.cause) & NARROWER)
        if cause.get("class") and not levels["cause"] and cause.get("certain") and not wider:
            score.wrong.append(f"cause {cause['class']}")
    if levels["samples"] is not None:
        smallest = ((why.get("replay") or {}).get("smallest_batch") or {}).get("sample_ids") or []
        skip = (why.get("recovery") or {}).get("skip_samples") or []
        levels["samples"] = sorted(case.samples) in (sorted(smallest), sorted(skip))


def _split(source: str) -> Any:
    file, _, line = source.rpartition(":")
    return (file, int(line)) if line.isdigit() else (source, -1)


def _digests(seen: Seen, rank: int) -> List[str]:
    return [event["digest"] for event in seen.ranks.get(rank, {}).get("events", [])]


def _lines(text: str) -> List[str]:
    """What the script said, in an order that does not depend on which rank was faster; times are left out."""
    return sorted(
        re.sub(r"'train_(runtime|samples_per_second|steps_per_second)': '?[0-9.e+-]+'?", "", line) for line in text.split("\n")
    )
