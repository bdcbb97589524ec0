"""The training that is measured: a GPT on random tokens, in blocks of steps that are asked for over two pipes.

    train.py COMMANDS ANSWERS [--peer none|anomaly|duo|isfinite] [--ddp]

Reads a line a block from COMMANDS and answers a line of JSON: "N" runs N steps, {"wall": [seconds a step], "cpu": [seconds of the
process]}; "bad N" runs N steps, in the first of which one block divides by 0; "waits" says how often the guard waited for a device, a step.
It knows nothing of firstbad. 17.1 million parameters, 512 tokens a step by default.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any, Dict, List

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.divisor = heads, 1.0
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.c_proj(y / self.divisor)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, block: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.h = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), labels.flatten())


def waits_of_the_guard() -> int:
    """How often firstbad has waited for a device so far; 0 in a process without it."""
    device = sys.modules.get("firstbad.pytorch.device")
    return device.waits if device is not None else 0


def own_ns() -> int:
    """Nanoseconds that firstbad's own code took on this thread so far, the library in it, incidents not; 0 without it."""
    patch = sys.modules.get("firstbad.pytorch.patch")
    return patch.clock.spent_ns - patch.clock.other_ns if patch is not None else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("commands")
    parser.add_argument("answers")
    parser.add_argument("--peer", default="none")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--block", type=int, default=128)
    options = parser.parse_args()
    rank = 0
    torch.manual_seed(0)
    model: nn.Module = GPT(options.vocabulary, options.width, options.layers, options.block)
    blocks = model.h
    if options.ddp:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank = dist.get_rank()
        model = nn.parallel.DistributedDataParallel(model)
    if options.peer == "anomaly":
        torch.autograd.set_detect_anomaly(True)
    if options.peer == "duo":
        from transformers.debug_utils import DebugUnderflowOverflow

        keep = DebugUnderflowOverflow(model)  # noqa: F841
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))

    def step() -> None:
        ids = torch.randint(0, options.vocabulary, (options.batch, options.block + 1))
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if options.peer == "isfinite":
            for parameter in model.parameters():
                if not torch.isfinite(parameter.grad).all():
                    raise FloatingPointError("gradient is not finite")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not math.isfinite(loss.item()):
            print("loss", loss.item(), flush=True)

    answers = open(options.answers, "w") if rank == 0 else None
    commands = open(options.commands) if rank == 0 else None
    while True:
        line = commands.readline() if commands else ""
        if options.ddp:
            box = [line]
            dist.broadcast_object_list(box)
            line = box[0]
        if not line.strip():
            break
        words = line.split()
        count = int(words[-1])
        answer: Dict[str, Any] = {"wall": [], "cpu": [], "own": []}
        waited = waits_of_the_guard()
        for number in range(count):
            blocks[-1].divisor = 0.0 if words[0] == "bad" and number == 0 else 1.0
            own, began, cpu = own_ns(), time.perf_counter(), time.process_time()
            step()
            answer["wall"].append(time.perf_counter() - began)
            answer["cpu"].append(time.process_time() - cpu)
            answer["own"].append((own_ns() - own) / 1e9)
        answer["waits"] = (waits_of_the_guard() - waited) / count
        if answers:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    if options.ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
