"""What is said about an update that was bad, around what was found out about it. True on every path, and in the words of `firstbad
why`."""
from __future__ import annotations

import os
from typing import Any, NamedTuple

from .. import _abi as abi

_WHAT = {abi.ENTRY: "a state that is not finite", abi.INPUT: "a bad batch", abi.FORWARD: "a non-finite activation",
         abi.LOSS: "a non-finite loss", abi.LOCAL_GRAD: "a non-finite gradient", abi.REDUCED_GRAD: "a non-finite gradient",
         abi.UPDATE: "a non-finite update", abi.CHECKPOINT: "a state that is not finite"}


class Words(NamedTuple):
    """The lines of a message that do not come from locating. Parts of `spread` and `case_line` stand on lines of their own."""

    headline: str
    spread: str
    next: str
    case_line: str


def words_of(verdict: Any, rank: int, world: int, folder: str, max_skips: int = 3, held_back: bool = False,
             ended: str = "") -> Words:
    """verdict: fb_verdict. rank: of the finding. folder: of the run. held_back: the update was made beside the state, and taken
    back. ended: by what the program itself ended in this update, "" where it goes on."""
    why = f"{_WHAT.get(verdict.first_boundary, 'a fault')} on rank {rank}" if rank >= 0 else reason(verdict)
    applied = verdict.action == abi.PROCEED
    if applied:
        headline = f"step {verdict.step} is applied although it is bad, as was asked for: {why}"
    elif world == 1:
        headline = f"step {verdict.step} was not applied: {why.partition(' on rank ')[0]}"
    else:
        headline = f"step {verdict.step} was not applied on {_where(verdict, rank, world)}: {why}"
    limit = os.environ.get("FIRSTBAD_MAX_SKIPS") or str(max_skips)
    if ended:
        then = f"the program ended here by itself: {ended}"
    elif verdict.action == abi.HALT:
        then = "the run halts here"
    elif applied:
        then = "training goes on, unguarded (observe)"
    else:
        then = f"skipped {verdict.consecutive_skips} of at most {limit} in a row; training goes on"
    case = verdict.case_id.decode() if isinstance(verdict.case_id, bytes) else str(verdict.case_id)
    return Words(headline, _spread(verdict, applied, world, held_back), then,
                 f"{folder}/cases/{case}\nfirstbad why {case}" if case else folder)


def _where(verdict: Any, rank: int, world: int) -> str:
    """On which ranks it was not: no more than the one that speaks knows."""
    if verdict.unanimous < 0 and verdict.agreement == abi.AGREE_VOTE:
        return "this rank, which does not know of the others"
    if verdict.agreement == abi.AGREE_NONE:
        return f"rank {rank}, where each of the {world} decides for itself"
    return f"any of {world} ranks"


def reason(verdict: Any) -> str:
    """Why a run halts in which no rank found anything."""
    if verdict.unanimous == 0:
        return "the ranks do not agree about where they are (firstbad why tells in what)"
    if verdict.unanimous < 0:
        return "a rank did not vote"
    return "something was not finite"


def _spread(verdict: Any, applied: bool, world: int, held_back: bool) -> str:
    boundary = verdict.first_boundary
    alone = world == 1 or verdict.agreement == abi.AGREE_NONE
    collective = "" if alone else "collective: it came out of it\n" if boundary == abi.REDUCED_GRAD else \
        "collective: yes, before the gate\n" if boundary in (abi.LOCAL_GRAD, abi.LOSS) else ""
    if applied:
        return collective + "parameters: the update is applied"
    if boundary in (abi.ENTRY, abi.CHECKPOINT):
        return "parameters or optimizer state: yes, before the step"
    if boundary == abi.UPDATE:
        return "parameters: no, taken back\noptimizer state: no" if held_back else "parameters or optimizer state: yes"
    return collective + "parameters: no\noptimizer state: no"
