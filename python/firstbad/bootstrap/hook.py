"""torch has been imported in a process below `firstbad run`: install the hooks, and leave a note that says so.

The note, pid-N.HOST.json in the bootstrap folder, is what `firstbad run` reads when no ledger was written: it tells a job that
never imported torch from one that never trained, and from one where we failed.
"""
from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, Dict, Optional

TORCH_OLDEST = (2, 2)
CUT = 240  # letters of a text in the note: the reader has room for 511 bytes
_note: Optional[str] = None
_facts: Dict[str, Any] = {}


def attach(here: str) -> None:
    """Install the hooks in this process. Never raises: a failure is told once on stderr, and noted.

    here  the bootstrap folder of the run. Cost: the import of firstbad.pytorch, a small file.
    """
    global _note
    torch = sys.modules["torch"]
    _note = os.path.join(here, f"pid-{os.getpid()}.{socket.gethostname()}.json")
    _facts.update(pid=os.getpid(), host=socket.gethostname(), command=_command(),
                  torch=str(getattr(torch, "__version__", "unknown")), rank=os.environ.get("RANK"), error=None)
    error = None
    if "all" in [part.strip() for part in os.environ.get("FIRSTBAD_OFF", "").split(",")]:
        error = "FIRSTBAD_OFF says all"
    else:
        try:
            _install(torch)
        except Exception as why:
            error = f"{type(why).__name__}: {why}"[:CUT]
            sys.stderr.write(f"firstbad: this process ({os.getpid()}) is not guarded: {error}\n")
    note(error=error)


def _install(torch: Any) -> None:
    found = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
    if found < TORCH_OLDEST:
        oldest = ".".join(map(str, TORCH_OLDEST))
        raise RuntimeError(f"torch {torch.__version__} is older than {oldest}, the oldest that is supported")
    from .. import pytorch

    pytorch.install()


def _command() -> str:
    """What this process runs, for a person; sys.argv is not there yet in every case."""
    return " ".join(getattr(sys, "orig_argv", None) or getattr(sys, "argv", []))[:CUT]


def note(**facts: Any) -> None:
    """Change what the note of this process says: note(error="the disk is full"), note(training=True).

    Nothing happens in a process that was not attached by `firstbad run`, nor in its forked children. Losing a note costs an
    explanation and nothing else, so a folder that cannot be written is passed over.
    """
    if _note is None or _facts.get("pid") != os.getpid():
        return
    _facts.update({name: value[:CUT] if isinstance(value, str) else value for name, value in facts.items()})
    aside = f"{_note}.tmp"
    try:
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(_facts, file)
        os.replace(aside, _note)
    except OSError:
        pass
