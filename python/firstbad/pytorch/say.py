"""What a person reads, once an incident, on stderr of the rank that speaks for it."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Optional

from .. import _abi as abi
from ..errors import Halted
from . import words as saying


def write(text: str) -> None:
    """To stderr, whole. A stderr that is gone is nobody's business."""
    try:
        sys.stderr.write(text if text.endswith("\n") else text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def told(session: Any, update: Any, verdict: abi.Verdict) -> Halted:
    """Tell what happened, if this rank speaks and there is a case. Returns what is raised where the run halts."""
    case = verdict.case_id.decode()
    located = update.located
    found = _first_bad(session, case)
    speaker = _speaker(session, verdict, located, found)
    text = ""
    if verdict.fault and case:
        text = _known(located, "text") or block(session, update, verdict, found)
        if session.rank == speaker:
            write(text if located is not None or not _said(session, case) else again(session, verdict))
        _remember(session, case)
    elif verdict.action == abi.HALT:
        text = f"firstbad: step {verdict.step} was not applied and the run halts: {saying.reason(verdict)}"
        if session.rank == max(speaker, 0):
            write(text)
    headline = (text.splitlines() or [f"firstbad: step {verdict.step}: {saying.reason(verdict)}"])[0]
    return Halted(headline, step=int(verdict.step), rank=int(verdict.first_rank) if verdict.first_rank >= 0 else None,
                  module=_known(located, "module") or (found or {}).get("module"), operator=_known(located, "op"),
                  source=_known(located, "source"), cause=_known(located, "sentence"),
                  case=os.path.join(session.folder, "cases", case) if case else None)


def _known(located: Any, name: str) -> Optional[str]:
    value = getattr(located, name, None) if located is not None else None
    return str(value) if value else None


def _speaker(session: Any, verdict: abi.Verdict, located: Any, found: Any) -> int:
    """The rank that owns what was located, else that of the finding. Where each rank is for itself, each speaks."""
    if session.world > 1 and verdict.agreement == abi.AGREE_NONE:
        return int(session.rank)
    owner = getattr(located, "owner", -1) if located is not None else -1
    if isinstance(owner, int) and 0 <= owner < session.world:
        return owner
    if session.world > 1 and verdict.agreement == abi.AGREE_NORM:
        return 0
    return int(verdict.first_rank) if verdict.first_rank >= 0 else 0


def _first_bad(session: Any, case: str) -> Optional[Dict[str, Any]]:
    """first_bad.json of the case; None where the disk did not keep it."""
    if not case:
        return None
    try:
        with open(os.path.join(session.folder, "cases", case, "first_bad.json"), encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None


def _said(session: Any, case: str) -> bool:
    return case in session.__dict__.setdefault("_said_cases", set())


def _remember(session: Any, case: str) -> None:
    session.__dict__.setdefault("_said_cases", set()).add(case)


def again(session: Any, verdict: abi.Verdict) -> str:
    """One more update of a case that was told already: one line."""
    limit = int(session.settings.get("max_skips") or 3)
    said = saying.words_of(verdict, int(verdict.first_rank), session.world, session.folder, limit)
    return f"firstbad: {said.headline}; {said.next}"


def block(session: Any, update: Any, verdict: abi.Verdict, found: Optional[Dict[str, Any]]) -> str:
    """The message without locating: what the checks know."""
    rank = int((found or {}).get("rank", verdict.first_rank))
    said = saying.words_of(verdict, rank, session.world, session.folder, int(session.settings.get("max_skips") or 3),
                           bool(getattr(update, "held", None)), str(getattr(update, "ended", "")))
    lines = [f"firstbad: {said.headline}"]
    if found:
        name = ".".join(part for part in (str(found.get("module") or ""), str(found.get("tensor") or "")) if part)
        first = f"{name}  {found.get('kind')} in {found.get('count')} of its elements, micro-step {found.get('micro_step')}"
        if session.world > 1:
            first += f", rank {rank}"
        lines.append(_row("first bad", first))
    for index, evidence in enumerate(getattr(update, "findings", ())):
        lines.append(_row("what" if index == 0 else "", str(getattr(evidence, "text", evidence))))
    for index, part in enumerate(said.spread.splitlines()):
        lines.append(_row("spread" if index == 0 else "", part))
    lines.append(_row("next", said.next))
    for index, part in enumerate(said.case_line.splitlines()):
        lines.append(_row("case" if index == 0 else "", part))
    return "\n".join(lines) + "\n"


def _row(label: str, text: str) -> str:
    return f"  {label:<11} {text}"


def no_quorum(session: Any, verdict: abi.Verdict) -> None:
    """A vote failed: say at once who is silent, before whatever the program makes of it."""
    try:
        who = session.ranks.silence()
    except Exception as why:  # asking must not hide what happened
        who = f"nobody knows why ({type(why).__name__}: {why})"
    write(f"firstbad: step {verdict.step} is not applied on rank {session.rank}: the vote did not complete: {who}\n")
