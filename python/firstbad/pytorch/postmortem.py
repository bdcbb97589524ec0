"""The program ends in the middle of an update: by an exception, or by sys.exit with a code. Was it because of a number?

Many programs look at their own loss and stop; a distribution refuses NaN before there is a loss. Nothing was handed to backward
then, so the gate has seen nothing, and yet this is the step that the user asks about. Only what is still there is asked: the
program of this update is run again, and what it computed is looked at. A program that ends for another reason is left alone.
"""
from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, List, Optional, Tuple

import torch

from .. import _abi as abi
from .. import _native
from ..errors import Halted, NonFiniteError
from . import patch
from .update import Update

_SPEAKS_OF_NUMBERS = re.compile(r"\bnans?\b|\binf\b|infinit|non-?finite|not finite|invalid values|failed to converge", re.I)
_code: Optional[int] = None  # what sys.exit was called with


def install(patches: Any) -> None:
    """Hear of sys.exit."""
    patches.wrap(sys, "exit", _exit)


def _exit(original: Any) -> Any:
    def exit(status: Any = None, /) -> Any:
        global _code
        _code = status if isinstance(status, int) else int(status is not None)
        return original(status)

    return exit


def why() -> str:
    """How the program ends, for a person: "ValueError: ...". "" where it ends well, or by the user's own hand."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, (KeyboardInterrupt, NonFiniteError)):
        return ""
    if error is not None:
        first = (str(error).splitlines() or [""])[0]
        return f"{type(error).__name__}: {first}"[:160].rstrip(": ")
    return f"sys.exit({_code})" if _code else ""


def look(session: Any) -> None:
    """The process is about to end. Opens the case of an update that ends with it, where a number was the reason. Never raises
    Halted: nobody is there to hear it."""
    update: Optional[Update] = session.update
    if update is None or update.verdict is not None or session.world != 1 or session.halted is not None:
        return
    update.ended = why()
    if not update.ended or session.recorder is None:
        return
    try:
        _look(session, update)
    except Halted:
        pass  # told already


def _look(session: Any, update: Update) -> None:
    if update.backwards:
        if any(not loss.finite for loss in update.losses) or not session.gates.gradients_finite():
            session.gates.run("the end of the program")
        if update.verdict is not None or not update.calls.held:
            return
    if session.inside is not None or update.forward_failed:
        return
    found = _last_bad(session)
    if found is None:
        return
    ref, tensor, boundary = found
    session.recorder.ended(ref)
    site = session.loss_site if boundary == abi.LOSS else abi.UINT32_MAX
    if not session.run.value:
        session.need_step()
    if boundary == abi.FORWARD or site == 0:
        session.reopen()
        site = session.loss_site if boundary == abi.LOSS else \
            session.names.site(session.run, abi.ROLE_ACTIVATION, "", "output", tuple(tensor.shape))
    update = session.need_step()
    finding = session.gates.finding(tensor, site, boundary, update.micro)
    _native.call(_native.lib().fb_step_report, session.run, ctypes.byref(finding), 1)
    session.gates.evidence(update)
    session.gates.decide(update)


def _last_bad(session: Any) -> Optional[Tuple[Any, torch.Tensor, int]]:
    """The loss: the scalar that was computed last and is not finite; else, where the exception speaks of numbers, what else was
    computed last and is NaN or infinite. As a replay has it, with its boundary."""
    from . import locate
    from .rehearse import is_bad
    from .replay import Replay

    refs: List[Any] = session.recorder.made()
    if not refs or not locate.wants_locating():
        return None
    program = session.recorder.finish(refs)
    again = Replay(program, locate.names_of(program, session.gradient_names, session.scalers))
    try:
        again.run()
    except Exception:  # what the program raised, it may raise again; then nothing is known
        return None
    made = [(ref, value, tracked) for ref, value, tracked in zip(refs, again.losses, again.tracked) if tracked and is_bad(value)]
    for ref, value, _ in reversed(made):
        if value.numel() == 1:
            return ref, value, abi.LOSS
    if made and _SPEAKS_OF_NUMBERS.search(str(getattr(sys, "last_value", ""))):
        return made[-1][0], made[-1][1], abi.FORWARD
    return None


@patch.guest("postmortem")
def at_end(session: Any) -> None:
    """What the session calls when it is closed."""
    look(session)
