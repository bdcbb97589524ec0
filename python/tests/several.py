"""A training script of several ranks, as a stranger would write it: it has never heard of firstbad. Started by several_ranks.py.

    torchrun --nproc-per-node 2 several.py --kind ddp --steps 6 --bad 3:1:gradient

Each rank writes rank-R.json: digests of what it ended with. `--bad STEP:RANK:WHAT[:MICRO]` makes that rank's batch or loss go
wrong, `--die STEP:RANK:HOW` that rank itself, `--touch STEP:RANK:FACTOR` multiplies its gradients (RANK all: on all ranks) after
they were clipped. `--leave` leaves out by itself what is bad, on all ranks; `--look STEP:RANK` runs a backward of no update.
"""
import argparse
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)


def digest(tensors):
    out = hashlib.sha256()
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor).detach()
        out.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return out.hexdigest()[:16]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 4))


def plain_net():  # without what sharding on the CPU does not do
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def make(args, rank, world):
    """(model, optimizer)"""
    if args.kind in ("ddp", "zero", "join"):
        model = DDP(net(), gradient_as_bucket_view=args.bucket_view, find_unused_parameters=args.find_unused,
                    bucket_cap_mb=25 if args.power else 0.001, static_graph=args.static)
        if args.kind == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    elif args.kind in ("fsdp", "fsdp-flat"):
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(plain_net(), use_orig_params=args.kind == "fsdp", device_id=torch.device("cpu"))
    elif args.kind in ("fully-shard", "tensor-parallel"):
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (world,))
        model = plain_net()
        if args.kind == "fully-shard":
            from torch.distributed.fsdp import fully_shard
            for layer in model:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        else:
            from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
            parallelize_module(model, mesh, {"3": ColwiseParallel(), "5": RowwiseParallel()})
    else:
        model = net()
    if args.power:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
        model.register_comm_hook(power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3), power.powerSGD_hook)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=args.fused or None)


def redirected(model, x):
    """As Lightning calls DDP: forward of the module within is another method, for this call."""
    def refuse(given):
        raise NotImplementedError("this module has no forward")

    def instead(given):
        model.module.forward = refuse
        return nn.Sequential.forward(model.module, given).tanh() * 2

    model.module.forward = instead
    return model(x)


def die(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "raise":
        raise ValueError("the disk of this rank is full")
    elif how == "exit":
        sys.exit(0)


def train(args):
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.late == rank:
        time.sleep(args.late_seconds)
    model, optimizer = make(args, rank, world)
    bad = args.bad.split(":") if args.bad else None
    died = args.die.split(":") if args.die else None
    touched = args.touch.split(":") if args.touch else None
    stream = torch.Generator().manual_seed(7 if args.kind == "tensor-parallel" else 100 + rank)
    begin = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    losses = []
    with contextlib.ExitStack() as stack:
        if args.kind == "join":
            from torch.distributed.algorithms.join import Join
            stack.enter_context(Join([model]))
        for step in range(begin, args.steps + (rank if args.kind == "join" else 0)):
            if args.look == f"{step}:{rank}":  # what does the model look at? One rank draws it, on its own
                image = torch.ones(2, 8, requires_grad=True)
                model.module.eval()(image).sum().backward()
                model.module.train()
            optimizer.zero_grad()
            for micro in range(args.micro):
                x, y = torch.randn(5, 8, generator=stream), torch.randn(5, 4, generator=stream)
                here = bad and (step, rank) == (int(bad[0]), int(bad[1])) and micro == int(bad[3] if len(bad) > 3 else 0)
                if here and bad[2] == "input":
                    x[2, 3] = float("nan")
                if died and (step, rank) == (int(died[0]), int(died[1])) and (died[2] != "raise" or not os.environ.get("AGAIN")) \
                        and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
                    die(died[2])
                with model.no_sync() if args.no_sync and micro + 1 < args.micro else contextlib.nullcontext():
                    if args.redirect:
                        out = redirected(model, x)
                    else:
                        out = model(x)
                    loss = (out - y).pow(2).mean() / args.micro
                    if bad and bad[2] == "gradient":  # the loss is finite; the slope of the root at 0 is not
                        loss = loss + torch.sqrt((out * 0).sum() + (0.0 if here else 1.0))
                    loss.backward()
                if here and bad[2] == "continue":
                    break
            losses.append(loss.item())
            if args.leave:
                finite = torch.isfinite(torch.stack([p.grad.sum() for p in model.parameters()])).all().int()
                dist.all_reduce(finite, op=dist.ReduceOp.MIN)
                if not finite:
                    continue
            if bad and bad[2] == "continue" and (step, rank) == (int(bad[0]), int(bad[1])):
                continue  # this rank leaves its optimizer out, and tells nobody
            if args.kind == "manual":
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world
            if args.clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if touched and step == int(touched[0]) and touched[1] in ("all", str(rank)):
                for parameter in model.parameters():
                    parameter.grad.mul_(float(touched[2]))
            optimizer.step()
            if args.checkpoint and rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, args.checkpoint)
            if args.checkpoint:
                dist.barrier()
    state = optimizer.state_dict()["state"] if args.kind in ("ddp", "plain") else {}
    result = {"parameters": digest(model.parameters()), "buffers": digest(model.buffers()),
              "losses": [repr(loss) for loss in losses],
              "moments": digest([t for kept in state.values() for t in kept.values()]), "stream": digest([torch.get_rng_state()]),
              "updates": max([int(kept["step"]) for kept in state.values()] + [0])}
    with open(f"rank-{rank}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="ddp")
    for name, default in (("--steps", 5), ("--micro", 1), ("--timeout", 1800), ("--late", -1), ("--late-seconds", 0)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--bad", "--die", "--checkpoint", "--touch", "--look"):
        parser.add_argument(name, default="")
    for name in ("--bucket-view", "--find-unused", "--static", "--no-sync", "--clip", "--fused", "--leave", "--redirect",
                 "--power"):
        parser.add_argument(name, action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
