"""What was not looked at, and why. A line is said once; the library keeps it in the ledger, `firstbad why` prints it."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from .. import _native
from ..errors import LibraryError
from . import patch


class Coverage:
    """Lines that come before the run is open wait for it."""

    def __init__(self) -> None:
        self.lines: List[str] = []
        self._run: Any = None
        self._waiting: List[str] = []

    def open(self, run: Any) -> None:
        """The run is there: tell it what waited."""
        self._run = run
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._tell(line)

    def note(self, line: str) -> None:
        """Say that something is not covered. Costs nothing when it was said before."""
        if line in self.lines:
            return
        self.lines.append(line)
        if self._run is None:
            self._waiting.append(line)
        else:
            self._tell(line)

    def _tell(self, line: str) -> None:
        try:
            _native.call(_native.lib().fb_run_not_covered, self._run, line.encode("utf-8", "replace"))
        except LibraryError as why:
            patch.failed("coverage", why)

    def close(self, folder: str, rank: int, facts: Dict[str, Any]) -> None:
        """Leave python-rNNNNN.json in the run's folder: what our own Python cost, what was not covered."""
        self._run = None
        facts = dict(facts, not_covered=self.lines, broken=patch.broken(), off=sorted(patch.switched_off()))
        try:
            with open(os.path.join(folder, f"python-r{rank:05d}.json"), "w", encoding="utf-8") as file:
                json.dump(facts, file, indent=1)
        except OSError:
            pass  # the folder cannot be written, which the library has told already
