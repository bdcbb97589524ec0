"""firstbad finds the first bad number of a training run, stops the update that would spread it, and says where it came from.

    firstbad run -- python train.py       guards a script that has never heard of firstbad

    import firstbad
    firstbad.check(tensor)                raises BadTensor, with path, kind and index, unless all of it is finite
    firstbad.latest_committed("ckpt")     the checkpoint to resume from
    firstbad.may_load(path)               raises LoadRefused for one that is bad
    firstbad.why()                        what `firstbad why --json` says of the newest case, as a dict

Importing this costs nothing: no torch, no numpy, no library. Names below are imported when they are first asked for.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from ._version import __version__

if TYPE_CHECKING:
    from . import pytorch as pytorch
    from .checkpoints import latest_committed as latest_committed, may_load as may_load, scan_checkpoint as scan_checkpoint
    from .errors import (BadTensor as BadTensor, FirstbadError as FirstbadError, Halted as Halted, LibraryError as LibraryError,
                         LoadRefused as LoadRefused, NonFiniteError as NonFiniteError, SaveWithheld as SaveWithheld)
    from .runs import ledger as ledger, why as why
    from .scan import check as check

_WHERE = {
    "BadTensor": "errors", "FirstbadError": "errors", "Halted": "errors", "LibraryError": "errors", "LoadRefused": "errors",
    "NonFiniteError": "errors", "SaveWithheld": "errors",
    "check": "scan",
    "latest_committed": "checkpoints", "may_load": "checkpoints", "scan_checkpoint": "checkpoints",
    "ledger": "runs", "why": "runs",
    "Guard": "pytorch", "attach": "pytorch",
}
_MODULES = ("pytorch", "checkpoints", "errors", "runs", "scan", "integrations")

__all__ = ["__version__", "BadTensor", "FirstbadError", "Halted", "LibraryError", "LoadRefused", "NonFiniteError", "SaveWithheld",
           "check", "latest_committed", "ledger", "may_load", "scan_checkpoint", "why"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module("." + _WHERE[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module("." + name, __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(_WHERE) | set(_MODULES))
