#!/usr/bin/env python3
"""Record gradient maxima of a real training run, which tests/property/test_policy_simulation.c draws its healthy steps from.

    scripts/make-gradient-maxima.py [--text FILE] [--out FILE]

A small GPT (4 layers, width 64, byte tokens) is trained in FP32 on a text that every Debian machine has, with a warm-up and a learning
rate high enough for gradient spikes. The batch of each step is cut into four parts, one for each rank, and of each part's gradient the
largest magnitude and the parameter that holds it are written down. Needs torch; takes about a minute. Figures differ a little between
versions of torch, so the file is kept as recorded, and there is no check against a new recording.

Format: comments start with #; then a line a step, for each rank "M@P": M is round(64 * log2(largest |gradient|)), P the parameter's
place along the dataflow.
"""
import argparse
import math
import os

import torch
from torch import nn
from torch.nn import functional

RANKS, ROWS, CONTEXT, WIDTH, LAYERS, HEADS = 4, 4, 64, 64, 4, 4
HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):  # (B,T,C)
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=2))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens):  # (B,T)
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--out", default=os.path.join(HERE, "..", "tests", "golden", "scaler", "gradient-maxima.txt"))
    parser.add_argument("--steps", type=int, default=1600)
    options = parser.parse_args()
    torch.manual_seed(1)
    with open(options.text, "rb") as text:
        data = torch.tensor(list(text.read()))
    model = Model()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95))
    lines = ["# gradient maxima of a small GPT on real text, recorded by scripts/make-gradient-maxima.py; the format is described there."]
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min(1.0, (step + 1) / 100)
        total = [torch.zeros_like(p) for p in parameters]
        words = []
        for _ in range(RANKS):
            at = torch.randint(len(data) - CONTEXT - 1, (ROWS,))
            tokens = torch.stack([data[i:i + CONTEXT + 1] for i in at])
            loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            gradients = torch.autograd.grad(loss, parameters)
            maxima = [float(g.abs().max()) for g in gradients]
            largest = max(maxima)
            words.append("%d@%d" % (round(64 * math.log2(largest)), maxima.index(largest)))
            for t, g in zip(total, gradients):
                t += g / RANKS
        lines.append(" ".join(words))
        for p, t in zip(parameters, total):
            p.grad = t
        optimizer.step()
        if step % 200 == 0:
            print("step %d loss %.3f %s" % (step, float(loss), lines[-1]), flush=True)
    with open(options.out, "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
