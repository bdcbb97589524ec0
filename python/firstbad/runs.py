"""Runs, as the command-line tool tells them: `why` and `ledger` are its JSON. And the number of this launch."""
from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _cli
from .errors import FirstbadError

_Path = Union[str, "os.PathLike[str]"]


def attempt_from_environment() -> int:
    """The attempt that this process belongs to: FIRSTBAD_ATTEMPT, and one more for each restart by torchrun since `firstbad run`
    began. 0 where `firstbad run` did not start it, or the variables are not numbers: the library then takes the next free one."""
    first = _number("FIRSTBAD_ATTEMPT")
    if first < 1:
        return 0
    # Behind torchrun, `firstbad run` is itself restarted, with an attempt of its own; FIRSTBAD_RESTARTS is the count it began with.
    return first + max(0, _number("TORCHELASTIC_RESTART_COUNT") - _number("FIRSTBAD_RESTARTS"))


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, "0"))
    except ValueError:
        return 0


def _tool(arguments: List[str]) -> List[str]:
    path = _cli.executable()
    if path is None:
        raise FirstbadError("the tool is not part of this installation: install firstbad with pip, or run make")
    return [path, *arguments]


def _failed(what: str, code: int, said: bytes) -> FirstbadError:
    sentence = said.decode("utf-8", "replace").strip()
    if sentence.startswith("firstbad: "):
        sentence = sentence[len("firstbad: "):]
    return FirstbadError(sentence or f"{what} ended with code {code} and said nothing")


def _place(name: Optional[_Path], runs_dir: Optional[_Path]) -> List[str]:
    words = [] if runs_dir is None else ["--dir", os.fspath(runs_dir)]
    return words if name is None else [*words, "--", os.fspath(name)]


def why(case_or_run: Optional[_Path] = None, *, runs_dir: Optional[_Path] = None) -> Dict[str, Any]:
    """What `firstbad why --json` says (docs/format/json.md), as a dict: `status` is "clean", "case" or "undecided".

    case_or_run  a run id, a step, a case ("a1-000412"), or the path of a run's or case's folder; None: the newest run
    runs_dir     folder that holds runs; None: FIRSTBAD_DIR, else "firstbad-runs"
    Raises FirstbadError with the tool's sentence when there is no such run or it cannot be read.
    """
    done = subprocess.run(_tool(["why", "--json", *_place(case_or_run, runs_dir)]), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (0, 1, 4):
        raise _failed("firstbad why", done.returncode, done.stderr)
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer


def ledger(run: Optional[_Path] = None, *, attempt: Optional[int] = None,
           runs_dir: Optional[_Path] = None) -> Iterator[Dict[str, Any]]:
    """Every record of every rank of a run, one dict a record, as `firstbad export --jsonl` writes them; the member "table" says
    which kind it is. Records are read as they are asked for, so a long run needs no memory.

    run  a run id or the path of a run folder; None: the newest. attempt  only this launch.
    Raises FirstbadError, after the last record too when something could not be read.
    """
    words = ["export", "--jsonl", "-"] + ([] if attempt is None else ["--attempt", str(attempt)])
    with subprocess.Popen(_tool([*words, *_place(run, runs_dir)]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as tool:
        assert tool.stdout is not None and tool.stderr is not None
        for line in tool.stdout:
            yield json.loads(line)
        said = tool.stderr.read()
    if tool.returncode != 0:
        raise _failed("firstbad export", tool.returncode, said)
