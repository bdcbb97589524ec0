"""Learning-rate schedules and averaged models: what moves with every update stays where it is when one is withheld.

A schedule is withheld only when it has stepped with every update so far; one that steps once an epoch is left alone.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Dict, Tuple

from . import patch, session as sessions, untouched


class Schedules:
    """Counts, for each schedule, its steps and the updates there were meanwhile."""

    def __init__(self) -> None:
        self._counts: Dict[int, Tuple[Any, int, int]] = {}  # id -> (weak reference, updates when first seen, steps)
        self._depth = threading.local()

    def install(self, patches: Any) -> None:
        from torch.optim import lr_scheduler, swa_utils

        base = lr_scheduler.LRScheduler
        kinds = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type) and issubclass(kind, base)]
        kinds += [kind for kind in vars(swa_utils).values() if isinstance(kind, type) and issubclass(kind, base)]
        plateau = lr_scheduler.ReduceLROnPlateau
        for kind in dict.fromkeys(kinds + [base, plateau]):
            if "step" in kind.__dict__:
                patches.wrap(kind, "step", self._step)
            if "__init__" in kind.__dict__:
                patches.wrap(kind, "__init__", self._made)
        patches.wrap(base, "_initial_step", self._initial)
        patches.wrap(swa_utils.AveragedModel, "update_parameters", self._average)

    def _made(self, original: Any) -> Any:
        def __init__(this: Any, *args: Any, **kwargs: Any) -> None:
            self._note(this)
            original(this, *args, **kwargs)

        return __init__

    @patch.guest("schedules")
    def _note(self, schedule: Any) -> None:
        """Made now: of the updates so far it has missed none."""
        session = sessions.current()
        if session is not None and session.mine():
            self._counts[id(schedule)] = (weakref.ref(schedule), _ended(session), 0)

    def _initial(self, original: Any) -> Any:
        def _initial_step(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._depth.value = getattr(self._depth, "value", 0) + 1
            try:
                return original(this, *args, **kwargs)
            finally:
                self._depth.value -= 1

        return _initial_step

    def _step(self, original: Any) -> Any:
        def step(this: Any, *args: Any, **kwargs: Any) -> Any:
            inner = getattr(self._depth, "value", 0)
            if inner == 0 and self._withheld(this):
                return None
            self._depth.value = inner + 1
            try:
                return original(this, *args, **kwargs)
            finally:
                self._depth.value = inner

        return step

    @patch.guest("schedules", False)
    def _withheld(self, schedule: Any) -> bool:
        """Count this step; True: it is not to be made."""
        session = sessions.current()
        if session is None or not session.mine():
            return False
        ended = _ended(session)
        known = self._counts.get(id(schedule))
        if known is None or known[0]() is not schedule:
            # Made before the first update: it has had as many chances to step as there were updates.
            known = (weakref.ref(schedule), 0, 0)
        _, begun, steps = known
        before = ended - 1 - begun  # updates before this one
        self._counts[id(schedule)] = (known[0], begun, steps + 1)
        return _last_withheld(session) and steps == before

    def _average(self, original: Any) -> Any:
        def update_parameters(this: Any, *args: Any, **kwargs: Any) -> Any:
            if _average_withheld():
                return None
            return original(this, *args, **kwargs)

        return update_parameters


def _ended(session: Any) -> int:
    """Updates that were decided on."""
    return int(session.updates) + int(session.update is not None and session.update.verdict is not None)


def _last_withheld(session: Any) -> bool:
    """Was the update that ended last, and after which no other began, withheld?"""
    if session.update is not None:
        return bool(session.update.skipped)
    return session.last is not None and bool(session.last.skipped)


@patch.guest("schedules", False)
def _average_withheld() -> bool:
    session = sessions.current()
    if session is None or not session.mine() or untouched.replaying():
        return False
    return _last_withheld(session)
