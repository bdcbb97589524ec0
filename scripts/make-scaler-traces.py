#!/usr/bin/env python3
"""Record traces of the real torch.amp.GradScaler("cpu"), which tests/unit/test_scaler.c replays bit for bit.

    scripts/make-scaler-traces.py                 write tests/golden/scaler/traces.txt
    scripts/make-scaler-traces.py --check [FILE]  record again with the installed torch and compare; exit 1 where they differ

Needs torch. Every step runs the whole sequence of a training script: scale, unscale_, step, update, on a parameter whose gradient
is finite or not; what is recorded as an overflow is what torch found, not what was planned.

Format, one trace:
    trace NAME init=F growth=F backoff=F interval=N tracker=N     F: C99 hexadecimal floats; tracker: growth tracker to start from
    +N          N clean updates, each adding 1 to the tracker and leaving the scale
    0:T=H       a clean update that left tracker T and the scale with FP32 bits H
    1:T=H       an overflow, the same
    end
"""
import argparse
import os
import random
import struct
import sys
import warnings

DEFAULT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "scaler", "traces.txt")


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def plans():
    """(name, init, growth, backoff, interval, tracker, overflow per step)"""
    def random_plan(seed, steps, share):
        rng = random.Random(seed)
        return [rng.random() < share for _ in range(steps)]

    yield "defaults", 65536.0, 2.0, 0.5, 2000, 0, [False] * 4100 + [True] + [False] * 2001
    yield "all-clean-interval-1", 1.0, 2.0, 0.5, 1, 0, [False] * 140
    yield "growth-to-inf-is-not-taken", 2.0**127, 2.0, 0.5, 3, 0, [False] * 7 + [True] + [False] * 8
    yield "growth-rounds-to-inf", 1.5 * 2.0**127, 1.4, 0.9, 2, 0, [False] * 12 + [True] * 4 + [False] * 12
    yield "largest-fp32", float.fromhex("0x1.fffffep127"), 1.0000001, 0.5, 1, 0, [False] * 6 + [True] * 2 + [False] * 60
    yield "falls-to-zero", 2.0**-100, 2.0, 0.5, 5, 0, [True] * 60 + [False] * 12
    yield "subnormal-scale", 2.0**-140, 3.0, 0.3, 2, 0, [True, False] * 12
    yield "factors-that-round", 65536.0, 1.1, 0.9, 3, 0, random_plan(1, 400, 0.2)
    yield "init-that-rounds", 1000.1, 1.7, 0.3, 2, 0, random_plan(2, 200, 0.25)
    yield "tracker-beyond-interval", 1024.0, 2.0, 0.5, 4, 6, [False] * 20 + [True] + [False] * 10
    yield "tracker-at-interval", 1024.0, 2.0, 0.5, 4, 4, [False] * 20 + [True] + [False] * 10
    yield "tracker-before-interval", 1024.0, 2.0, 0.5, 4, 3, [False] * 10 + [True] + [False] * 10
    yield "all-overflow", 65536.0, 2.0, 0.5, 2000, 0, [True] * 40
    yield "from-2-to-32", 2.0**32, 2.0, 0.5, 100, 0, [True] * 16 + [False] * 450 + [True] + [False] * 250
    rng = random.Random(7)
    for i in range(24):
        init = 2.0 ** rng.uniform(-20, 127)
        growth = rng.choice([2.0, 1.5, 4.0, 1.0 + rng.random(), 1.001])
        backoff = rng.choice([0.5, 0.25, 0.75, rng.uniform(0.05, 0.99)])
        interval = rng.choice([1, 2, 3, 10, 50])
        share = rng.choice([0.0, 0.02, 0.1, 0.3, 0.7])
        yield "random-%02d" % i, init, growth, backoff, interval, rng.randrange(interval), random_plan(100 + i, 240, share)


def run(torch, plan):
    """The updates of one plan: (overflow, tracker, scale bits) after each."""
    name, init, growth, backoff, interval, tracker, overflows = plan
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
    if tracker:
        state = scaler.state_dict()
        state["_growth_tracker"] = tracker
        scaler.load_state_dict(state)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=1e-30)
    for overflow in overflows:
        parameter.grad = torch.tensor([1.0, float("inf") if overflow else 1.0])
        scaler.scale(torch.ones(()))
        scaler.unscale_(optimizer)
        found = any(float(v) != 0.0 for v in scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        yield found, state["_growth_tracker"], bits(state["scale"])


def record(torch):
    lines = ["# torch.amp.GradScaler(\"cpu\"), recorded by scripts/make-scaler-traces.py; the format is described there."]
    for plan in plans():
        name, init, growth, backoff, interval, tracker, _ = plan
        lines.append("trace %s init=%s growth=%s backoff=%s interval=%d tracker=%d" %
                     (name, init.hex(), growth.hex(), backoff.hex(), interval, tracker))
        clean, tokens = 0, []
        at, scale = tracker, bits(init)
        for found, new_tracker, new_scale in run(torch, plan):
            if not found and new_tracker == at + 1 and new_scale == scale:
                clean += 1
            else:
                if clean:
                    tokens.append("+%d" % clean)
                    clean = 0
                tokens.append("%d:%d=%08x" % (found, new_tracker, new_scale))
            at, scale = new_tracker, new_scale
        if clean:
            tokens.append("+%d" % clean)
        for i in range(0, len(tokens), 8):
            lines.append(" ".join(tokens[i:i + 8]))
        lines.append("end")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with FILE and write nothing")
    parser.add_argument("file", nargs="?", default=DEFAULT, metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        import torch
    except ImportError:
        sys.exit("make-scaler-traces: torch is not installed")
    text = record(torch)
    if not options.check:
        with open(options.file, "w", encoding="ascii") as out:
            out.write(text)
        return 0
    with open(options.file, encoding="ascii") as recorded:
        old = recorded.read()
    if old == text:
        print("%s: torch %s does the same, %d traces" % (options.file, torch.__version__, text.count("\ntrace ")))
        return 0
    for number, (before, now) in enumerate(zip(old.split("\n"), text.split("\n")), 1):
        if before != now:
            print("%s:%d: recorded %r, torch %s gives %r" % (options.file, number, before, torch.__version__, now))
            break
    else:
        print("%s: recorded and new traces differ in length" % options.file)
    return 1


if __name__ == "__main__":
    sys.exit(main())
