"""An overflow under a dynamic loss scale: is it the scale's doing? The batch is asked, not the history of skips alone.

A scale that is too high overflows gradients that are finite without it. So the update is replayed once without the scale and
without numbers of 16 bits: what is not finite there either was not made by the scale, no smaller one will help, and the scaler
would skip that batch, or every batch, in silence.
"""
from __future__ import annotations

from typing import Any, Dict, List

import torch

from .. import _native
from . import locate
from .program import Program
from .rehearse import is_bad
from .replay import Change, Replay

PROBED = 2  # the first skips in a row that are asked about; more of them are, as long as the answer is yes


def persists(session: Any, update: Any, verdict: Any) -> bool:
    """The vote called it probing. Is it there without the scale, too? Then the library knows it now, and another vote of this step
    will say so. The same on all ranks; False where it cannot be asked. Cost: one replay, which is about one step."""
    last = session.__dict__.get("_came_back", False)
    if (verdict.consecutive_skips > PROBED and not last) or not locate.parts_asked() or not locate.wants_locating():
        return False
    ranks = locate.group_of(session)
    if ranks.world > 1 and ranks.max_ints is None:
        return False  # the ranks could come to different answers
    if session.recorder is None or session.inside is not None or getattr(session.ranks, "sharded", False):
        return False
    answer = _ask(session, update)
    if ranks.max_ints is not None:
        # -1 of any rank is an overflow that could not be asked about, and leaves the question open unless another one proves it.
        answer = int(ranks.max_ints([answer])[0])
    session.__dict__["_came_back"] = answer > 0
    if answer < 0:
        return False
    _native.call(_native.lib().fb_run_note_replay, session.run, answer)
    return answer > 0


def _ask(session: Any, update: Any) -> int:
    """1: gradients that are bad in the run are bad in the replay, or a loss is; 0: none; -1: this rank cannot tell, or has none."""
    program = session.recorder.finish()
    names = locate.names_of(program, session.gradient_names, session.scalers)
    bad = {id(leaf) for leaf, _, _ in names.gradients if id(leaf) in update.gated and is_bad(leaf.grad)}
    if not bad:
        return -1
    again = Replay(program, names)
    try:
        again.run(change=Change(widen=True, externals=_without_scale(program, session.scalers)))
    except (MemoryError, RuntimeError, ValueError, TypeError):
        return -1  # a model that refuses FP32 leaves the question open
    if any(is_bad(loss) for loss in again.losses):
        return 1
    return int(any(is_bad(gradient) for leaf, gradient in again.gradients if id(leaf) in bad))


def _without_scale(program: Program, scalers: List[Any]) -> Dict[int, torch.Tensor]:
    """The scales of GradScalers among the externals of a program -> 1."""
    scales = [scaler._scale for scaler in scalers if isinstance(getattr(scaler, "_scale", None), torch.Tensor)]
    return {number: torch.ones_like(external.tensor) for number, external in enumerate(program.externals)
            if any(external.tensor is scale for scale in scales)}
