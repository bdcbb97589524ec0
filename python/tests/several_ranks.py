"""Start several.py on several ranks, guarded or alone, by torchrun or by hand, and read what came of it."""
from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
SCRIPT = ROOT / "python" / "tests" / "several.py"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Job:
    """code, out and err of the command; ranks: what each rank wrote; why: `firstbad why --json` of the run, when it was guarded."""

    def __init__(self, folder: pathlib.Path, world: int, *words: Any, guarded: bool = True, env: Dict[str, str] = {},
                 launcher: List[str] = [], script: pathlib.Path = SCRIPT, timeout: int = 240) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.world = folder, world
        full = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTBAD_") or name == "FIRSTBAD_LIBRARY"}
        full.update(OMP_NUM_THREADS="1", FIRSTBAD_PYTHON=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1",
                    **env)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port", str(free_port()),
                   "--monitor-interval", "2", *launcher, str(script), *map(str, words)]
        if guarded:
            command = [str(BUILD / "firstbad"), "run", "--dir", str(folder / "runs"), "--run-id", "job", "--", *command]
        done = subprocess.run(command, cwd=str(folder), env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              timeout=timeout)
        self.code, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()
        self.ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]

    @property
    def said(self) -> List[str]:
        """Lines of firstbad's own, on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("firstbad:")]

    def why(self, *words: str) -> Any:
        done = subprocess.run([str(BUILD / "firstbad"), "why", "--json", "--dir", str(self.folder / "runs"), "job", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return json.loads(done.stdout)

    def why_text(self) -> str:
        return subprocess.run([str(BUILD / "firstbad"), "why", "--dir", str(self.folder / "runs"), "job"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE).stdout.decode()

    def python(self) -> List[Any]:
        """What each rank's attachment left: lines not covered, parts that broke, its own cost."""
        return [json.loads(path.read_text()) for path in sorted((self.folder / "runs" / "job").glob("python-r*.json"))]


def same(jobs: List[Job], *fields: str) -> bool:
    """Do all ranks of all jobs have the same in these fields?"""
    seen = {tuple(json.dumps(rank[field]) for field in fields) for job in jobs for rank in job.ranks}
    return len(seen) == 1
