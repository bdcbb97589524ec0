"""What it costs to scan a checkpoint, against a plain read of the same file and against what people do today.

Run it with bench/ckpt/run.sh [--gib N] [--rounds N] [--folder PATH] [--no-cold] [--no-many].

Warm: the file is in the page cache. Cold: it is evicted before each run. Rows: a bare read() loop in blocks of 256 KiB, and of 1
MiB, which is what we read in; the latter by two threads, which is what two cores can reach; `cat` to nothing; our scan with one
and two threads, without and with the digest; with full statistics; then safetensors + torch.isfinite, tensor by tensor;
torch.load(weights_only=True) + the same; and the fastest trick, isfinite of the sum, which can be wrong in both directions. Last,
100,000 tensors in one file of safetensors, and in a folder that torch.distributed.checkpoint writes.

All rows run in turn within a round, ratios are taken within a round, and the median over the rounds is printed with the smallest
time. Processor time is the smallest of all rounds: on a machine that does other work it tells more than the clock. A figure that
misses what we set out to reach is marked.
"""
import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed.checkpoint as distributed
from safetensors import safe_open
from safetensors.torch import save_file

NO_DIGEST, STATS = 1, 2
BLOCK, LARGE = 256 << 10, 1 << 20


class Cost(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("cpu_seconds", ctypes.c_double)]


class Bench:
    def __init__(self, library):
        self.c = ctypes.CDLL(library)
        self.c.bench_read.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Cost)]
        self.c.bench_read_twice.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Cost)]
        self.c.bench_scan.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(Cost), ctypes.c_char_p,
                                      ctypes.c_size_t]
        self.c.bench_evict.argtypes = [ctypes.c_char_p]

    def read(self, path, block=BLOCK, call="bench_read"):
        cost = Cost()
        if getattr(self.c, call)(path.encode(), block, cost) != 0:
            sys.exit(f"bench/ckpt: cannot read {path}")
        return cost.seconds, cost.cpu_seconds

    def scan(self, path, threads, flags):
        cost, why = Cost(), ctypes.create_string_buffer(1024)
        outcome = self.c.bench_scan(path.encode(), threads, flags, cost, why, len(why))
        if outcome != 0:
            sys.exit(f"bench/ckpt: the scan of {path} gave {outcome}: {why.value.decode()}")
        return cost.seconds, cost.cpu_seconds

    def reads(self, path):
        return self.c.bench_scan(path.encode(), 1, NO_DIGEST, Cost(), ctypes.create_string_buffer(1024), 1024) == 0

    def evict(self, path):
        if self.c.bench_evict(path.encode()) != 0:
            sys.exit(f"bench/ckpt: cannot evict {path}")


def cpu_seconds():
    """Of this process and of those that it waited for."""
    uses = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in uses)


def timed(work):
    wall, cpu = time.monotonic(), cpu_seconds()
    work()
    return time.monotonic() - wall, cpu_seconds() - cpu


def cat(path):
    with open(os.devnull, "wb") as nothing:
        subprocess.run(["cat", path], stdout=nothing, check=True)


def check(finite):
    if not finite:
        sys.exit("bench/ckpt: a peer found something in a clean file")


def safetensors_loop(path):
    with safe_open(path, "pt") as f:
        for key in f.keys():
            check(torch.isfinite(f.get_tensor(key)).all().item())


def safetensors_sum(path):
    with safe_open(path, "pt") as f:
        for key in f.keys():
            check(torch.isfinite(f.get_tensor(key).sum()).item())


def numpy_sum(path):
    with safe_open(path, "np") as f:
        for key in f.keys():
            check(numpy.isfinite(numpy.add.reduce(f.get_tensor(key), axis=None)))


def torch_loop(path):
    for tensor in torch.load(path, weights_only=True).values():
        check(torch.isfinite(tensor).all().item())


def write_files(folder, gib, dtype, name):
    """Blocks of a GPT: a few large matrices, and small vectors between them."""
    tensors, left, block = {}, int(gib * 2**30), 0
    generator = torch.Generator().manual_seed(1)
    while left > 0:
        for part, shape in (("attn", (3072, 1024)), ("ln", (1024,)), ("up", (4096, 1024)), ("down", (1024, 4096))):
            t = (torch.randn(shape, generator=generator) * 0.02).to(dtype)
            tensors[f"h.{block}.{part}.weight"] = t
            left -= t.numel() * t.element_size()
        block += 1
    paths = os.path.join(folder, f"{name}.safetensors"), os.path.join(folder, f"{name}.pt")
    save_file(tensors, paths[0])
    torch.save(tensors, paths[1])
    return paths


def measure(rows, rounds, before):
    seen = {name: [] for name, _ in rows}
    for _ in range(rounds):
        for name, work in rows:
            before()
            seen[name].append(work())
    return seen


def report(title, seen, size, goals):
    print(f"{title}, {size / 1e9:.2f} GB")
    print(f"  {'':34} {'GB/s':>7} {'of read':>8} {'CPU s/GB':>9} {'of read':>8}")
    read = [cost[0] for cost in seen["read()"]]
    read_cpu = min(cost[1] for cost in seen["read()"])
    for name, costs in seen.items():
        ratio = statistics.median(r / cost[0] for r, cost in zip(read, costs))
        cpu = min(cost[1] for cost in costs)
        rate = size / min(cost[0] for cost in costs) / 1e9
        print(f"  {name:34} {rate:7.2f} {ratio:8.2f} {cpu / size * 1e9:9.3f} {read_cpu / cpu:8.2f}")
    for text, ours, peer, goal in goals:
        if ours not in seen or peer not in seen:
            continue
        got = statistics.median(p[0] / o[0] for o, p in zip(seen[ours], seen[peer]))
        best = min(p[0] for p in seen[peer]) / min(o[0] for o in seen[ours])
        print(f"  {text:46} {got:6.2f} (best of each {best:6.2f})  wanted {goal}{'' if got >= goal else '   MISSED'}")


def warm(bench, paths, dtype, rounds):
    st, pt = paths
    rows = [("read()", lambda: bench.read(st)), ("read(), 1 MiB", lambda: bench.read(st, LARGE)),
            ("read(), 1 MiB, 2 threads", lambda: bench.read(st, LARGE, "bench_read_twice")),
            ("cat", lambda: timed(lambda: cat(st))),
            ("scan, 1 thread", lambda: bench.scan(st, 1, NO_DIGEST)), ("scan + digest, 1 thread", lambda: bench.scan(st, 1, 0)),
            ("scan, 2 threads", lambda: bench.scan(st, 2, NO_DIGEST)), ("scan + digest, 2 threads", lambda: bench.scan(st, 2, 0)),
            ("scan + statistics, 1 thread", lambda: bench.scan(st, 1, NO_DIGEST | STATS)),
            ("safetensors + isfinite", lambda: timed(lambda: safetensors_loop(st))),
            ("safetensors + isfinite of the sum", lambda: timed(lambda: safetensors_sum(st))),
            ("torch.load + isfinite", lambda: timed(lambda: torch_loop(pt)))]
    if bench.reads(pt):
        rows.append(("scan of the same from torch.save", lambda: bench.scan(pt, 1, NO_DIGEST)))
    else:
        print("SKIP the row of torch.save: this build does not read its format")
    if dtype == "fp32":
        rows.append(("numpy, isfinite of the sum", lambda: timed(lambda: numpy_sum(st))))
    goals = [("scan against read()", "scan, 1 thread", "read()", 0.85),
             ("scan against read(), 1 MiB", "scan, 1 thread", "read(), 1 MiB", 0.85),
             ("2 threads against 1", "scan, 2 threads", "scan, 1 thread", 1.6),
             ("2 threads against 1, of read(), 1 MiB", "read(), 1 MiB, 2 threads", "read(), 1 MiB", 1.6),
             ("statistics against the plain scan", "scan + statistics, 1 thread", "scan, 1 thread", 0.5),
             ("against torch.load + isfinite", "scan, 1 thread", "torch.load + isfinite", 8 if dtype == "fp32" else 20),
             ("against the sum in torch", "scan, 1 thread", "safetensors + isfinite of the sum", 2),
             ("against the sum in numpy", "scan, 1 thread", "numpy, isfinite of the sum", 2)]
    for path in paths:
        bench.read(path)
    report(f"warm, {dtype}", measure(rows, rounds, lambda: None), os.path.getsize(st), goals)


def cold(bench, path, rounds):
    rows = [("read()", lambda: bench.read(path)), ("read(), 1 MiB", lambda: bench.read(path, LARGE)),
            ("scan, 1 thread", lambda: bench.scan(path, 1, NO_DIGEST)),
            ("scan + digest, 1 thread", lambda: bench.scan(path, 1, 0))]
    seen = measure(rows, rounds, lambda: bench.evict(path))
    size = os.path.getsize(path)
    report("cold, fp32", seen, size, [("scan against a cold read()", "scan, 1 thread", "read()", 0.9)])
    cpu = min(cost[1] for cost in seen["scan, 1 thread"]) / size * 1e9
    print(f"  {'CPU seconds a GB':46} {cpu:6.3f}  wanted 0.08 at most{'' if cpu <= 0.08 else '   MISSED'}")


def many(bench, folder, rounds):
    path = os.path.join(folder, "many.safetensors")
    save_file({f"t.{i}": torch.ones(10) for i in range(100000)}, path)
    dcp = os.path.join(folder, "many")
    distributed.save({f"t.{i}": torch.ones(10) for i in range(100000)}, checkpoint_id=dcp, no_dist=True)
    for what, where in (("in one file", path), ("in a folder of torch.distributed.checkpoint", dcp)):
        costs = [bench.scan(where, 1, 0) for _ in range(rounds)]
        seconds = min(cost[0] for cost in costs)
        print(f"100,000 tensors {what}: {seconds:.3f} s, processor time {min(cost[1] for cost in costs):.3f} s"
              f"  wanted 1 at most{'' if seconds <= 1 else '   MISSED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default="build-bench")
    parser.add_argument("--no-cold", action="store_true")
    parser.add_argument("--no-many", action="store_true")
    args = parser.parse_args()
    bench = Bench(args.library)
    os.makedirs(args.folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ckpt-", dir=args.folder) as folder:
        for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
            paths = write_files(folder, args.gib, dtype, name)
            warm(bench, paths, name, args.rounds)
            if name == "fp32" and not args.no_cold:
                cold(bench, paths[0], max(3, args.rounds // 2))
            for path in paths:
                os.unlink(path)
        if not args.no_many:
            many(bench, folder, args.rounds)


main()
