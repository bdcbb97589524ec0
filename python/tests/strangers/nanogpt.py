"""Trains a small character-level GPT: gradient accumulation, autocast, GradScaler, cosine schedule, evaluation, checkpoints, resume.

    python nanogpt.py --dtype bfloat16 --out out
    python nanogpt.py --dtype bfloat16 --out out --resume
"""
import argparse
import math
import os
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

from common import checksum

TEXT = ("the cat sat on the mat and the dog ran after the ball while the rain fell on the old roof of the small house by the sea. " * 20)
BUG = os.environ.get("BUG", "")


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 32
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    dropout: float = 0.1


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size)).view(1, 1, config.block_size, -1))

    def forward(self, x, pad):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        if pad is not None:
            att = att.masked_fill(pad[:, None, None, :], float("-inf"))
        att = F.softmax(att, dim=-1)
        y = self.attn_dropout(att) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd),
                                 nn.Dropout(config.dropout))

    def forward(self, x, pad):
        x = x + self.attn(self.ln_1(x), pad)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=nn.LayerNorm(config.n_embd)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None, pad=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x, pad)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--out", default="")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1337)

    chars = sorted(set(TEXT))
    data = torch.tensor([chars.index(c) for c in TEXT], dtype=torch.long)
    train_data, val_data = data[:2000], data[2000:]
    config = GPTConfig()
    model = GPT(config)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3,
                                  betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=args.dtype == "float16")
    ctx = nullcontext() if args.dtype == "float32" else torch.amp.autocast("cpu", dtype=getattr(torch, args.dtype))
    first = 0
    if args.resume:
        ckpt = torch.load(os.path.join(args.out, "ckpt.pt"))
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])
        scaler.load_state_dict(ckpt["scaler"])
        first = ckpt["iter_num"]

    def get_batch(split, it, micro):
        source = train_data if split == "train" else val_data
        g = torch.Generator().manual_seed(it * 10 + micro)
        ix = torch.randint(len(source) - config.block_size - 1, (4,), generator=g)
        x = torch.stack([source[i:i + config.block_size] for i in ix])
        y = torch.stack([source[i + 1:i + 1 + config.block_size] for i in ix])
        pad = None
        if split == "train" and micro == 1:
            if BUG == "unlabelled" and it == 5:
                y = torch.full_like(y, -1)          # nobody labelled these documents
            if BUG == "padded" and it == 5 or BUG == "padded-for-ever" and it >= 5:
                pad = torch.zeros_like(x, dtype=torch.bool)
                pad[2, :3] = True                   # padded on the left: the first queries see nothing
            if BUG == "shifted" and it == 5:
                x = x.clone()
                x[3, 7] = 65535                     # an id that was stored in 16 bits
        return x, y, pad

    def get_lr(it):
        if it < 3:
            return 1e-3 * (it + 1) / 4
        return 1e-4 + 0.5 * (1.0 + math.cos(math.pi * (it - 3) / 20)) * 9e-4

    @torch.no_grad()
    def estimate_loss():
        model.eval()
        losses = [model(*get_batch("val", 1000 + k, 0)[:2])[1].item() for k in range(2)]
        model.train()
        return sum(losses) / len(losses)

    for it in range(first, first + args.steps):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        lossf = 0.0
        for micro in range(args.accumulation):
            X, Y, pad = get_batch("train", it, micro)
            with ctx:
                logits, loss = model(X, Y, pad)
                loss = loss / args.accumulation
            lossf += loss.item()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"iter {it}: loss {lossf!r}, norm {norm.item()!r}", flush=True)
        if it % 4 == 3:
            print(f"iter {it}: val loss {estimate_loss()!r}", flush=True)
            if args.out:
                os.makedirs(args.out, exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(),
                            "config": asdict(config), "iter_num": it + 1}, os.path.join(args.out, "ckpt.pt"))
    print("parameters", checksum(model))


main()
