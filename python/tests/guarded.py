"""Running programs under the guard from tests: the library, the interpreter's environment, one process for many programs."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent


def build() -> pathlib.Path:
    """The build tree under test; the calling test is skipped without one."""
    folder = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", HERE.parent.parent / "build"))
    if not (folder / "libfirstbad.so").exists() and not os.environ.get("FIRSTBAD_LIBRARY"):
        pytest.skip(f"no library in {folder}")
    return folder


def environment(tmp: pathlib.Path, **more: str) -> Dict[str, str]:
    """Of a child that is guarded, with runs in `tmp`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FIRSTBAD_") or key in (
        "FIRSTBAD_BUILD", "FIRSTBAD_LIBRARY")}
    kept.update(PYTHONPATH=str(PACKAGE), FIRSTBAD_DIR=str(tmp / "runs"), OMP_NUM_THREADS="1", FIRSTBAD_BUILD=str(build()),
                FIRSTBAD_DEBUG="1")
    kept.update(more)
    return kept


def python(tmp: pathlib.Path, *arguments: str, expect: int = 0, **more: str) -> subprocess.CompletedProcess:
    """This interpreter with `arguments`, guarded if the program guards itself."""
    done = subprocess.run([sys.executable, *arguments], cwd=tmp, env=environment(tmp, **more), capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def script(tmp: pathlib.Path, text: str, expect: int = 0, **more: str) -> subprocess.CompletedProcess:
    """A script of its own."""
    path = tmp / "script.py"
    path.write_text(text)
    return python(tmp, str(path), expect=expect, **more)


def programs(tmp: pathlib.Path, guarded: bool, bad: int, names: List[str], **more: str) -> Dict[str, Dict[str, Any]]:
    """Reports of guarded_programs.py by name; "stderr" is that of all of them."""
    out: Dict[str, Dict[str, Any]] = {}
    # In a process that has compiled anything roots are not looked for any more.
    for part in ([n for n in names if "compiled" not in n], [n for n in names if "compiled" in n]):
        done = python(tmp, str(HERE / "guarded_programs.py"), "guarded" if guarded else "plain", str(bad), *part, **more)
        reports = {report["name"]: dict(report, stderr=done.stderr) for report in map(json.loads, done.stdout.splitlines())}
        assert sorted(reports) == sorted(part), done.stderr
        out.update(reports)
    return out
