"""What the guard costs in a healthy step of firstbad-gpt.

Target: own time <= 1 % of the step at 512 tokens a rank and more. Own time is timed around each public call (calls.c); waiting in
the vote's collective is not in it. The share is in wall time; beside it stand the same share in processor time of the thread, which
a busy machine does not flatter by stretching the step (on several ranks it counts MPI's polling as step), and what the run's own
ledger says, guard_ns / duration_ns, which is what `firstbad why` prints. A comparison of whole runs with and without --no-guard
cannot resolve one per cent and is printed as a check of plausibility (on/off). Every round runs all configurations once, in turn;
figures are medians over rounds of medians over steps.

Run with bench/step/run.sh [--rounds N] [--steps N] [--ranks 1,4] [--batch N]. The model is the default one: 4 layers, 64 channels.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PRECISIONS = ("fp32", "bf16", "fp16")
BLOCK = 64


def launch(args, ranks, precision, guard):
    """One run. Returns (calls, share in the ledger, seconds a step over the whole run)."""
    folder = os.path.join(args.work, "runs")
    subprocess.run(["rm", "-rf", folder], check=True)
    calls_file = os.path.join(args.work, "calls")
    command = ["mpirun", "-n", str(ranks), "--oversubscribe"] if ranks > 1 else []
    command += [os.path.join(args.work, "firstbad-gpt"), "--steps", str(args.steps), "--batch", str(args.batch)]
    command += ["--block", str(BLOCK), "--precision", precision, "--log-every", "0", "--dir", folder]
    if precision == "fp16":
        command += ["--loss-scale", "1024"]  # no probing: every step is a healthy one
    if not guard:
        command.append("--no-guard")
    began = time.perf_counter()
    subprocess.run(command, check=True, env=dict(os.environ, BENCH_CALLS=calls_file), stdout=subprocess.DEVNULL)
    seconds = (time.perf_counter() - began) / args.steps
    if not guard:
        return None, None, seconds
    with open(calls_file) as lines:
        calls = {name: float(value) for name, value in (line.split() for line in lines)}
    export = subprocess.run([args.tool, "export", "--jsonl", "-", "--dir", folder], check=True, capture_output=True, text=True)
    shares = []
    for line in export.stdout.splitlines():
        if '"table":"steps"' in line:
            step = json.loads(line)
            if step["step"] > 10:
                shares.append(step["guard_ns"] / step["duration_ns"])
    return calls, statistics.median(shares), seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("tool")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", default="1,4")
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    if args.steps <= 12:
        sys.exit("bench/step: --steps must be above 12, for the first ten steps are not counted")
    worlds = [int(n) for n in args.ranks.split(",")]
    cells = {(ranks, precision): [] for ranks in worlds for precision in PRECISIONS}
    plain = {key: [] for key in cells}
    for done in range(args.rounds):
        for ranks, precision in cells:
            # Which of the two goes first alternates, so that a machine that slows down favours neither.
            for guard in ((True, False) if done % 2 == 0 else (False, True)):
                result = launch(args, ranks, precision, guard)
                (cells if guard else plain)[ranks, precision].append(result)

    median = statistics.median
    counted = f"median of {args.rounds} rounds of {args.steps - 10} steps"
    print(f"guard in a healthy step of firstbad-gpt, {args.batch * BLOCK} tokens a rank, {counted}")
    print(f"{'ranks':>5} {'format':>6} {'step ms':>8} {'own us':>7} {'share':>7} {'cpu':>7} {'ledger':>7} {'reach':>6} {'':4} "
          f"{'on/off':>7}")
    missed = 0
    for key, results in cells.items():
        own = median(calls["own"] for calls, _, _ in results)
        step = median(calls["step"] for calls, _, _ in results)
        share = median(calls["own"] / calls["step"] for calls, _, _ in results)
        cpu = median(calls["own_cpu"] / calls["step_cpu"] for calls, _, _ in results)
        ledger = median(share_ for _, share_, _ in results)
        ratio = median(on[2] / off[2] for on, off in zip(results, plain[key]))
        worst = max(share, cpu)
        verdict = "ok" if worst <= 0.01 else "MISS"
        missed += not worst <= 0.01
        print(f"{key[0]:>5} {key[1]:>6} {step / 1e6:8.2f} {own / 1e3:7.1f} {share:7.2%} {cpu:7.2%} {ledger:7.2%} {'<= 1%':>6} "
              f"{verdict:4} {ratio:7.3f}")
    print("\nown time by call, microseconds a step, the same medians")
    names = [name for name in cells[next(iter(cells))][0][0] if name not in ("own", "step", "own_cpu", "step_cpu")]
    print(f"{'ranks':>5} {'format':>6} " + " ".join(f"{name.replace('check_', ''):>10}" for name in names))
    for key, results in cells.items():
        times = (median(calls[name] for calls, _, _ in results) / 1e3 for name in names)
        print(f"{key[0]:>5} {key[1]:>6} " + " ".join(f"{us:10.1f}" for us in times))
    if missed:
        print(f"\n{missed} of {len(cells)} miss the target")


main()
