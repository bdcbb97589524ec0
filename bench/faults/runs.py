"""One script under one tool: started as a process of its own, and what was seen of it."""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from truth import HERE, Case

LIMIT_SECONDS = 120.0


@dataclass
class Seen:
    """What a run left behind."""

    code: int
    out: str
    err: str
    seconds: float
    ranks: Dict[int, Dict[str, Any]] = field(default_factory=dict)  # of the observer
    end: Optional[Dict[str, Any]] = None  # firstbad run --json
    why: Optional[Dict[str, Any]] = None  # firstbad why --json, of the first case where there are several


def start(case: Case, tool: str, python: str, firstbad: str, package: str, text: Optional[str] = None, quick: bool = False) -> Seen:
    """Run `case` under `tool`: firstbad, plain, oracle, or a peer of inject/observer.py.

    firstbad  path of the command; package: folder that holds the Python package, for a build tree
    text      run this instead of the script's own text, under the same name
    quick     in a fork of a process that has imported torch (zygote.py), where firstbad takes no part; its seconds tell nothing
    The script runs in a folder of its own, one thread; it is killed after LIMIT_SECONDS, and the code is then -9.
    """
    folder = tempfile.mkdtemp(prefix="faults-")
    try:
        script = os.path.join(folder, case.name + ".py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(case.text if text is None else text)
        command = [python, script]
        if case.ranks > 1:
            command = [
                python,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                str(case.ranks),
                "--master-port",
                str(_port()),
                script,
            ]
        env = dict(
            os.environ,
            OMP_NUM_THREADS="1",
            PYTHONPATH=os.path.join(HERE, "inject"),
            FAULTBENCH_OUT=os.path.join(folder, "seen"),
            FAULTBENCH_SCRIPT=script,
            FAULTBENCH_MODE="plain" if tool == "firstbad" else tool,
            HF_HUB_OFFLINE="1",
            PYTHONHASHSEED="0",
        )
        runs = os.path.join(folder, "firstbad-runs")
        if tool == "firstbad":
            command = [firstbad, "run", "--json", "--dir", runs, "--", *command]
            if package:
                env["FIRSTBAD_PYTHON"] = package
        began = time.perf_counter()
        if quick and tool != "firstbad" and case.ranks == 1:
            code, out, err = _fork(python, script, folder, env)
        else:
            code, out, err = _process(command, folder, env)
        seen = Seen(code, out, err, time.perf_counter() - began)
        for path in glob.glob(os.path.join(folder, "seen.*.json")):
            with open(path, encoding="utf-8") as file:
                seen.ranks[int(path.split(".")[-2])] = json.load(file)
        if tool == "firstbad":
            seen.end = _last_json(err)
            first = sorted(os.path.basename(case_) for case_ in glob.glob(os.path.join(runs, "*", "cases", "a*")))[:1]
            said = subprocess.run(
                [firstbad, "why", "--json", "--dir", runs, *first], cwd=folder, env=env, capture_output=True, text=True
            )
            seen.why = json.loads(said.stdout) if said.stdout.strip() else None
            if os.environ.get("FAULTBENCH_KEEP"):
                shutil.copytree(runs, os.path.join(os.environ["FAULTBENCH_KEEP"], case.name), dirs_exist_ok=True)
        return seen
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _process(command: List[str], folder: str, env: Dict[str, str]) -> Tuple[int, str, str]:
    """Exit code, standard output and error of a process of its own."""
    job = subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        out, err = job.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
    return job.returncode, out, err


_thread = threading.local()


def _fork(python: str, script: str, folder: str, env: Dict[str, str]) -> Tuple[int, str, str]:
    """The same by zygote.py, of which each thread has one."""
    zygote = getattr(_thread, "zygote", None)
    if zygote is None:
        command = [python, os.path.join(HERE, "zygote.py")]
        clean = {key: value for key, value in env.items() if not key.startswith("FAULTBENCH_") and key != "PYTHONPATH"}
        zygote = _thread.zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean, text=True)
    paths = {name: os.path.join(folder, name + ".txt") for name in ("out", "err")}
    handed = {key: value for key, value in env.items() if key.startswith(("FAULTBENCH_", "HF_"))}
    zygote.stdin.write(json.dumps({"script": script, "cwd": folder, "env": handed, "seconds": LIMIT_SECONDS, **paths}) + "\n")
    zygote.stdin.flush()
    code = int(zygote.stdout.readline())
    texts = []
    for name in ("out", "err"):
        with open(paths[name], encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return code, texts[0], texts[1]


def _port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def _last_json(text: str) -> Optional[Dict[str, Any]]:
    for line in reversed(text.strip().split("\n")):
        if line.startswith("{"):
            try:
                found: Dict[str, Any] = json.loads(line)
                return found
            except ValueError:
                continue
    return None


def states(seen: Seen, rank: int, kind: str) -> List[Dict[str, Any]]:
    """The observer's events that tell updates apart, and the end."""
    return [event for event in seen.ranks.get(rank, {}).get("events", []) if event["kind"] in (kind, "exit")]


def versions(python: str) -> str:
    script = "import torch, platform; print(f'PyTorch {torch.__version__}, Python {platform.python_version()}')"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def has(python: str, module: str) -> bool:
    return (
        subprocess.run(
            [python, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"]
        ).returncode
        == 0
    )


if __name__ == "__main__":
    sys.exit("run.py starts this")
