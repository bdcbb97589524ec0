"""The scripts of `strangers/`, what is true of each, and a way to run them: plain, guarded, and with their fault.

A script is run as its author would, and never imports firstbad. What is true of its fault was worked out by hand from the script,
so it is independent of what firstbad says. Runs are started two at a time before the first test waits, since each spends most of
its time in imports.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Dict, List, Optional, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
STRANGERS = pathlib.Path(__file__).resolve().parent / "strangers"
TIMEOUT_S = 300


@dataclasses.dataclass(frozen=True)
class Truth:
    """What is true of a fault. `line` is text of the source line, searched in `file` (of the strangers, else the end of a path)."""
    step: int
    operator: Tuple[str, ...] = ()          # any of these
    module: Tuple[str, ...] = ()            # any of these; (): not told apart
    line: str = ""
    file: str = ""
    cause: Tuple[str, ...] = ()
    micro: int = 0
    rank: int = 0
    boundary: Tuple[str, ...] = ()
    halts: bool = False                     # by itself, under the policy that is the default
    samples: Tuple[int, ...] = ()           # that are to be left out
    may_be_unnamed: bool = False            # such an update is not replayed, and coverage says so: no name is right, a wrong one is not


@dataclasses.dataclass(frozen=True)
class Stranger:
    """One way of calling a script."""
    name: str
    script: str
    bug: str
    truth: Truth
    args: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    ranks: int = 1
    launcher: str = "python"                # python, torchrun, accelerate
    env: Tuple[Tuple[str, str], ...] = ()
    plain_ends: int = 0                     # exit code of the script with its fault and without firstbad
    poisons: bool = True                    # without firstbad the fault makes the parameters bad
    not_yet: Tuple[str, str] = ("", "")     # what firstbad does not yet say right of the fault, and how that disagreement begins

    @property
    def missing(self) -> List[str]:
        return [module for module in self.needs if importlib.util.find_spec(module) is None]


@dataclasses.dataclass
class Done:
    """How a run ended."""
    code: int
    out: str
    err: str
    runs: pathlib.Path
    cwd: pathlib.Path

    def lines(self) -> List[str]:
        """What the script printed of its losses and parameters, sorted where ranks print at the same time."""
        return sorted(line for line in self.out.splitlines()
                      if re.search(r"loss|parameters|logit", line) and "train_runtime" not in line)

    def parameters(self) -> List[str]:
        return sorted(re.sub(r"of rank \d+ ", "", line) for line in self.out.splitlines() if line.startswith("parameters"))

    def run_id(self) -> str:
        ids = sorted(path.name for path in self.runs.iterdir())
        assert len(ids) == 1, ids
        return ids[0]

    def why(self) -> Dict:
        done = subprocess.run([str(BUILD / "firstbad"), "why", "--json", str(self.runs / self.run_id())], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60)
        assert done.returncode in (0, 1, 4), done.stderr.decode()
        return json.loads(done.stdout)


def environment(extra: Sequence[Tuple[str, str]] = ()) -> Dict[str, str]:
    """Of a stranger: no trace of firstbad, one thread, nothing is downloaded."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("FIRSTBAD_") and name not in ("PYTHONPATH", "BUG")}
    env.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="", USE_TF="0",
               PYTHONDONTWRITEBYTECODE="1")
    env.update(dict(extra))
    return env


def command(stranger: Stranger, more: Sequence[str] = ()) -> List[str]:
    script = str(STRANGERS / stranger.script)
    if stranger.launcher == "torchrun":
        front = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(stranger.ranks)]
    elif stranger.launcher == "accelerate":
        front = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1",
                 "--mixed_precision", "no", "--dynamo_backend", "no"]
    else:
        front = []
    return [sys.executable, *front, script, *stranger.args, *more]


def run(stranger: Stranger, folder: pathlib.Path, guarded: bool, bug: bool, options: Sequence[str] = (), more: Sequence[str] = (),
        bug_name: Optional[str] = None) -> Done:
    """Run a script in `folder`, an empty or earlier working folder of it."""
    folder.mkdir(parents=True, exist_ok=True)
    env = environment(stranger.env)
    if bug:
        env["BUG"] = bug_name or stranger.bug
    line = command(stranger, more)
    if guarded:
        line = [str(BUILD / "firstbad"), "run", "--dir", str(folder / "runs"), *options, "--", *line]
    done = subprocess.run(line, cwd=str(folder), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=TIMEOUT_S)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode(), folder / "runs", folder)


class Pool:
    """Runs of strangers by (name, kind), each once, started when it is first asked for or announced."""

    KINDS = {"plain": (False, False, ()), "healthy": (True, False, ()), "faulty": (True, True, ()), "broken": (False, True, ()),
             "halted": (True, True, ("--on-bad", "halt"))}

    def __init__(self, folder: pathlib.Path, workers: int = 2):
        self.folder, self.futures = folder, {}
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)

    def announce(self, stranger: Stranger, kind: str) -> "concurrent.futures.Future[Done]":
        key = (stranger.name, kind)
        if key not in self.futures:
            guarded, bug, options = self.KINDS[kind]
            self.futures[key] = self.pool.submit(run, stranger, self.folder / f"{stranger.name}-{kind}", guarded, bug, options)
        return self.futures[key]

    def get(self, stranger: Stranger, kind: str) -> Done:
        return self.announce(stranger, kind).result()

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)


def source_line(truth: Truth) -> Optional[str]:
    """file:line of the truth, where the file is a stranger's."""
    path = STRANGERS / truth.file
    if not path.exists():
        return None
    numbers = [i for i, text in enumerate(path.read_text().splitlines(), 1) if truth.line in text]
    assert len(numbers) == 1, (truth.file, truth.line, numbers)
    return f"{truth.file}:{numbers[0]}"


def bare(operator: Optional[str]) -> Optional[str]:
    """"softmax" of "aten._softmax.default"."""
    if operator is None:
        return None
    parts = operator.split(".")
    name = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[0]
    return re.sub("_forward$", "", name).strip("_")


def disagreements(stranger: Stranger, why: Dict) -> List[str]:
    """What `why --json` says against the truth, in sentences; empty when all of it is right. An answer that names nobody is told
    too, and is told apart from a wrong one by beginning with "not named"."""
    truth, out = stranger.truth, []
    first, cause = why["first_bad"], why["cause"]
    if why["status"] != "case" or first is None:
        return [f"not named: status is {why['status']}"]

    def expect(what: str, got: object, wanted: Sequence[object]) -> None:
        if wanted and got not in wanted:
            unnamed = got is None or got in ("unknown", "undecidable")
            if not (unnamed and truth.may_be_unnamed):
                out.append(f"{'not named: ' if unnamed else ''}{what} is {got!r}, true is {' or '.join(map(repr, wanted))}")

    expect("step", first["step"], (truth.step,))
    expect("rank", first["rank"], (truth.rank,))
    expect("boundary", first["boundary"], truth.boundary)
    location = why["location"]
    origin = location["origin"] if location else None
    expect("operator", bare(first["operator"]), truth.operator)
    if truth.operator and origin is not None:
        expect("micro-step", origin["micro_step"], (truth.micro,))
        expect("module", first["operator_module"], truth.module)
    if truth.operator and truth.line:
        got = first["source"]
        wanted = source_line(truth)
        if wanted is None:
            if got is None or truth.file not in got:
                out.append(f"{'not named: ' if got is None else ''}source is {got!r}, true is in {truth.file}")
        elif got is None and truth.may_be_unnamed:
            pass
        elif got is None or not got.endswith(wanted):
            out.append(f"{'not named: ' if got is None else ''}source is {got!r}, true is {wanted}")
    expect("cause", cause["class"] if cause else None, truth.cause)
    if truth.samples:
        expect("samples to leave out", tuple(why["recovery"]["skip_samples"]), (truth.samples,))
    return out
