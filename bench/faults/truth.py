"""The truth of every case: truth.toml, and the marks in the scripts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "# origin"


@dataclass
class Case:
    """One script and what is true of it. What is None or empty is not asked."""

    name: str
    kind: str  # fault, finite (a fault that makes nothing non-finite, or is none of numbers), healthy
    what: str
    step: int = -1  # 0-based count of updates; skipped ones count, and after a resume those that the optimizer has counted
    at: Optional[int] = None  # the same within the process, where that differs
    steps_too: List[int] = field(
        default_factory=list
    )  # where another answer is right as well: state that is bad and not read at first
    micro: Optional[int] = None
    per_step: int = 1  # backward calls an update
    count_by: str = "backward"  # or "step": what tells the updates apart
    ranks: int = 1
    rank: Optional[int] = None
    entry: Optional[str] = None  # "input", "entry_state": no operator is to blame
    boundary: List[str] = field(default_factory=list)
    direction: Optional[str] = None
    module: List[str] = field(default_factory=list)
    operator: List[str] = field(default_factory=list)
    tensor: List[str] = field(default_factory=list)
    cause: List[str] = field(default_factory=list)
    samples: List[int] = field(default_factory=list)
    source_in: List[str] = field(default_factory=list)  # the place is in one of these files instead of the script
    raises: Optional[str] = None  # the script dies of it by itself
    scalar: bool = False  # the bad number is a Python number that an operator is handed
    handled: bool = False  # the script skips the update by itself
    scaler: bool = False
    trainer: Optional[str] = None
    needs: Optional[str] = None
    legal: List[str] = field(default_factory=list)  # operators whose results are not finite in healthy steps too
    repair: List[str] = field(default_factory=list)  # [old, new]: with it the script is healthy

    @property
    def number(self) -> int:
        """Which update of the process it is, 0-based."""
        return self.step if self.at is None else self.at

    @property
    def script(self) -> str:
        return os.path.join(HERE, "cases", self.name + ".py")

    @property
    def text(self) -> str:
        with open(self.script, encoding="utf-8") as file:
            return file.read()

    @property
    def lines(self) -> List[int]:
        """Lines that are marked, 1-based."""
        return [number for number, line in enumerate(self.text.split("\n"), 1) if line.rstrip().endswith(MARK)]

    def is_place(self, file: str, line: int) -> bool:
        name = os.path.basename(file)
        return name in self.source_in or (name == self.name + ".py" and line in self.lines)


def normal(name: str) -> str:
    """One name for aten::div.Tensor, div_ and DivBackward0, as docs/format/operators.md reads them; without underscores."""
    name = name.split("::")[-1]
    for prefix in ("aten.", "c10d.", "_c10d_functional."):
        name = name[len(prefix) :] if name.startswith(prefix) else name
    name = name.split(".")[0]
    if not name.islower():  # a node: words with capitals, Backward and a number
        name = name.rstrip("0123456789")
        name = name[: -len("Backward")] if name.endswith("Backward") else name
        name = "".join(("_" if at and letter.isupper() else "") + letter.lower() for at, letter in enumerate(name))
    name = name.strip("_")
    for ending in ("_backward", "_forward"):
        name = name[: -len(ending)] if name.endswith(ending) else name
    return name.replace("_", "")


def load(only: Optional[List[str]] = None) -> List[Case]:
    """Cases in the order of their names; `only`: parts of names."""
    import tomllib

    with open(os.path.join(HERE, "truth.toml"), "rb") as file:
        table: Dict[str, Dict[str, Any]] = tomllib.load(file)
    cases = [Case(name=name, **facts) for name, facts in sorted(table.items())]
    return [case for case in cases if not only or any(part in case.name for part in only)]
