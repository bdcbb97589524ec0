"""What firstbad costs a PyTorch training that is healthy, and what people use today costs the same training.

Target: <= 1 % of a step at 17 million parameters and 512 tokens on the CPU; <= 50 ms of start-up beyond the import of torch.

Every way of training is a process of its own (train.py), and all of them stay alive: blocks of steps are asked of them in turn, A
B C C B A, so that what else the machine does meets all alike. A figure is the median over rounds of (time of a block) / (time of
the plain block of the same half round), with the interval that holds the median of such ratios at 95 % (by order statistics);
beside it the same in processor time of the process, which a busy machine does not stretch. The plain training runs twice: "plain
again" says what this method resolves.

    run.sh [--rounds N] [--steps N] [--threads N] [--no-ddp] [--json FILE]
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


class Training:
    """One process of train.py, or two under torchrun, that runs steps when it is asked."""

    def __init__(
        self,
        name: str,
        folder: str,
        options: argparse.Namespace,
        guarded: bool = False,
        peer: str = "none",
        ddp: bool = False,
        env: Optional[Dict[str, str]] = None,
    ) -> None:
        self.name = name
        self.place = os.path.join(folder, name.replace(" ", "-").replace("/", "-"))
        os.mkdir(self.place)
        for pipe in ("commands", "answers"):
            os.mkfifo(os.path.join(self.place, pipe))
        command = [options.python]
        if ddp:
            command += [
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "2",
                "--master-port",
                str(20000 + os.getpid() % 20000 + len(name)),
            ]
        command += [
            os.path.join(HERE, "train.py"),
            os.path.join(self.place, "commands"),
            os.path.join(self.place, "answers"),
            "--peer",
            peer,
        ]
        command += [*options.size, *(["--ddp"] if ddp else [])]
        if guarded:
            command = [options.firstbad, "run", "--dir", os.path.join(self.place, "runs"), "--", *command]
        self.log = open(os.path.join(self.place, "log"), "w")
        self.job = subprocess.Popen(
            command,
            env=dict(os.environ, OMP_NUM_THREADS=str(options.threads), FIRSTBAD_PYTHON=options.package, **(env or {})),
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self.answers = open(os.path.join(self.place, "answers"))
        self.commands = open(os.path.join(self.place, "commands"), "w")

    def ask(self, words: str) -> Dict[str, Any]:
        self.commands.write(words + "\n")
        self.commands.flush()
        line = self.answers.readline()
        if not line:
            raise SystemExit(f"{self.name} ended; see {self.place}/log:\n" + open(os.path.join(self.place, "log")).read()[-2000:])
        answer: Dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.commands.close()
        self.job.wait()
        self.log.close()


def interval(values: List[float]) -> Tuple[float, float, float]:
    """Median, and order statistics that hold it at 95 % or, of few values, their range."""
    ordered = sorted(values)
    count = len(ordered)
    low = 0
    while low + 1 < count / 2 and sum(math.comb(count, k) for k in range(low + 1)) / 2**count <= 0.025:
        low += 1
    low = max(0, low - 1)
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]


def compare(trainings: List[Training], options: argparse.Namespace) -> Dict[str, Dict[str, Any]]:
    """Ratios to the first training, half round by half round."""
    for training in trainings:
        training.ask(str(options.warm))
    ratios: Dict[str, Dict[str, List[float]]] = {training.name: {"wall": [], "cpu": []} for training in trainings}
    seconds: Dict[str, List[float]] = {training.name: [] for training in trainings}
    for number in range(2 * options.rounds):
        order = trainings if number % 2 == 0 else trainings[::-1]
        block = {training.name: training.ask(str(options.steps)) for training in order}
        plain = block[trainings[0].name]
        for name, answer in block.items():
            seconds[name] += answer["wall"]
            for clock in ("wall", "cpu"):
                ratios[name][clock].append(statistics.median(answer[clock]) / statistics.median(plain[clock]))
    found = {}
    for training in trainings[1:]:
        row: Dict[str, Any] = {"seconds": statistics.median(seconds[training.name])}
        for clock in ("wall", "cpu"):
            row[clock], row[f"{clock}_low"], row[f"{clock}_high"] = interval(ratios[training.name][clock])
        found[training.name] = row
    found[trainings[0].name] = {"seconds": statistics.median(seconds[trainings[0].name]), "wall": 1.0, "cpu": 1.0}
    return found


def show(title: str, found: Dict[str, Dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':<28}{'a step':>10}  {'wall, to plain':>28}  {'processor time, to plain':>28}")
    for name, row in found.items():
        cells = []
        for clock in ("wall", "cpu"):
            cells.append(
                f"{row[clock]:.4f} ({row[clock + '_low']:.4f} to {row[clock + '_high']:.4f})" if clock + "_low" in row else "1"
            )
        print(f"{name:<28}{row['seconds'] * 1e3:>8.1f}ms  {cells[0]:>28}  {cells[1]:>28}")


def start_up(options: argparse.Namespace, folder: str) -> Dict[str, float]:
    """Seconds beyond the plain import of torch: medians of differences within a round."""
    ways = {
        "plain": [options.python, "-c", "import torch"],
        "below firstbad run": [
            options.firstbad,
            "run",
            "--dir",
            os.path.join(folder, "startup"),
            "--",
            options.python,
            "-c",
            "import torch",
        ],
        "below it, without torch": [
            options.firstbad,
            "run",
            "--dir",
            os.path.join(folder, "startup"),
            "--",
            options.python,
            "-c",
            "pass",
        ],
        "plain, without torch": [options.python, "-c", "pass"],
    }
    took: Dict[str, List[float]] = {name: [] for name in ways}
    env = dict(os.environ, FIRSTBAD_PYTHON=options.package)
    for number in range(options.starts + 1):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            began = time.perf_counter()
            subprocess.run(ways[name], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            if number:
                took[name].append(time.perf_counter() - began)
    torch = [a - b for a, b in zip(took["below firstbad run"], took["plain"])]
    bare = [a - b for a, b in zip(took["below it, without torch"], took["plain, without torch"])]
    return {"torch": statistics.median(torch), "without": statistics.median(bare), "plain": statistics.median(took["plain"])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument(
        "--firstbad", default=os.path.join(os.environ.get("FIRSTBAD_BUILD", os.path.join(ROOT, "build")), "firstbad")
    )
    parser.add_argument("--package", default=os.path.join(ROOT, "python", "firstbad"))
    parser.add_argument("--rounds", type=int, default=6, help="each is two half rounds, in opposite orders")
    parser.add_argument("--steps", type=int, default=3, help="steps of a block")
    parser.add_argument("--warm", type=int, default=5, help="steps before; firstbad holds the first two updates back")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--size", default="", type=str.split, help="arguments of train.py, for example '--width 128 --layers 2'")
    parser.add_argument("--peers", default="anomaly,duo,isfinite", type=lambda words: [word for word in words.split(",") if word])
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.size = options.size or []
    names = {"anomaly": "detect_anomaly", "duo": "DebugUnderflowOverflow", "isfinite": "isfinite of each gradient"}
    result: Dict[str, Any] = {}
    compileall.compile_dir(options.package, quiet=1)  # as pip does when it installs
    with tempfile.TemporaryDirectory(prefix="bench-pytorch-") as folder:
        trainings = [
            Training("plain", folder, options),
            Training("plain again", folder, options),
            Training("firstbad run", folder, options, guarded=True),
        ]
        trainings += [Training(names[peer], folder, options, peer=peer) for peer in options.peers]
        result["step"] = compare(trainings, options)
        show("one process", result["step"])
        plain = result["step"]["plain"]["seconds"]
        result["own"] = statistics.median(trainings[2].ask("step 8")["own"])
        print(f"\nthe guard's own code in a healthy step: {result['own'] * 1e3:.2f} ms, {result['own'] / plain * 100:.2f} % of a plain one")
        located = trainings[2].ask("bad 1")["wall"][0]
        result["located_in_steps"] = located / plain
        print(f"\na bad update, skipped, replayed and located: {located:.2f} s, {located / plain:.1f} plain steps")
        for training in trainings:
            training.close()
        training = Training("device path", folder, options, guarded=True, env={"FIRSTBAD_DEVICE_PATH": "1"})
        training.ask(str(options.warm))
        result["waits"] = training.ask("step 6")["waits"]
        training.close()
        print(f"what lies on a device is looked at there: the guard waits {result['waits']:.1f} times a step for an answer")
        if not options.no_ddp:
            pair = [
                Training("DDP of 2, plain", folder, options, ddp=True),
                Training("DDP of 2, firstbad run", folder, options, guarded=True, ddp=True),
            ]
            result["ddp"] = compare(pair, options)
            show("two ranks, gloo", result["ddp"])
            for training in pair:
                training.close()
        result["start_up"] = start_up(options, folder)
        print(
            f"\nstart-up beyond the import of torch ({result['start_up']['plain']:.2f} s): "
            f"{result['start_up']['torch'] * 1e3:.0f} ms"
            f"; of a Python that does not import it: {result['start_up']['without'] * 1e3:.0f} ms, both with firstbad run itself"
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "firstbad.bench.pytorch/1", **result}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
