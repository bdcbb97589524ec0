"""What the callbacks share: attach where `firstbad run` has not, tell the framework's own step number, and see what was
withheld."""
from __future__ import annotations

from typing import Optional

from .. import pytorch
from ..errors import Halted


class Watch:
    """The guarded run, as a callback sees it.

    on_bad     "skip" (default): a bad update is left out, and the run is halted after `max_skips` in a row; "halt"; "observe"
    max_skips  default 3
    run_dir    where run folders are made; default "firstbad-runs"
    run_id     default: made from the time
    Under `firstbad run` its options hold, and these are passed over. Raises ValueError for settings that mean nothing.
    """

    def __init__(self, on_bad: Optional[str] = None, max_skips: Optional[int] = None, run_dir: Optional[str] = None,
                 run_id: Optional[str] = None) -> None:
        self.guard = pytorch.attach(on_bad=on_bad or "skip", max_skips=3 if max_skips is None else max_skips, run_dir=run_dir,
                                    run_id=run_id)
        self._seen = 0

    def begin(self) -> None:
        """Training begins."""
        session = pytorch.current()
        self._seen = session.skips if session is not None else 0

    def number(self, step: int) -> None:
        """The update that begins is number `step` (0-based) to the framework; so it is in the ledger. A number that has been is
        left alone: the order of the ledger counts for more."""
        from ..pytorch import session as sessions

        session = sessions.obtain()
        if session is None or session.dead or session.update is not None:
            return
        if not session.run.value:
            # The run is opened with its first update, and would count from what the optimizers know, which leaves out what was
            # skipped.
            session.first_wanted = session.number = step
        elif step > session.number:
            session.number = step

    def skipped(self) -> int:
        """Updates that were withheld since this was last asked."""
        session = pytorch.current()
        if session is None:
            return 0
        total = int(session.skips)
        last = session.update
        if last is not None and last.skipped:
            total += 1  # withheld, and not closed yet
        new, self._seen = total - self._seen, total
        return max(0, new)

    @property
    def halted(self) -> Optional[Halted]:
        """The answer, where the run is halted."""
        session = pytorch.current()
        return session.halted if session is not None else None
