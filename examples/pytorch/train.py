"""Train a small transformer on documents of different lengths. It does not know firstbad, and one of its documents is empty.

    firstbad run -- python examples/pytorch/train.py
    firstbad run -- python examples/pytorch/train.py --checkpoints ckpt
    firstbad run -- python examples/pytorch/train.py --resume "$(firstbad ckpt latest ckpt)"

An empty document is nothing but padding. Its row of the attention mask holds no key, and a softmax over nothing but -inf is 0/0.
The loss of that batch stays finite, since padding is not counted, but its gradient does not: every weight becomes NaN, and the
loss shows it one batch too late. --drop-empty is the fix.
"""
import argparse
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, WIDTH, LENGTH = 0, 32, 24


class Documents(Dataset):
    """Sequences of ids that count upwards from a random place. Number 83 is empty."""

    def __init__(self, drop_empty):
        self.lengths = [0 if i == 83 else 4 + (i * 7) % (LENGTH - 4) for i in range(128)]
        self.kept = [i for i, n in enumerate(self.lengths) if n or not drop_empty]

    def __len__(self):
        return len(self.kept)

    def __getitem__(self, index):
        document = self.kept[index]
        ids = torch.full((LENGTH,), PAD)
        for at in range(self.lengths[document]):
            ids[at] = 1 + (document * 5 + at) % 60
        return ids


class Attention(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.heads = heads

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
        weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.ln2, self.mlp = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class Transformer(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(64, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(layers)])
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, ids):
        T = ids.size(1)
        mask = torch.ones(T, T, dtype=torch.bool).tril() & (ids != PAD)[:, None, None, :]
        x = self.wte(ids) + self.wpe(torch.arange(T))
        for block in self.h:
            x = block(x, mask)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drop-empty", action="store_true", help="leave documents without a token out")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--checkpoints", metavar="DIR", help="save here after every fourth batch")
    parser.add_argument("--resume", metavar="FILE", help="go on from this checkpoint, with the next batch")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Documents(args.drop_empty), batch_size=8)
    first = (0, 0)
    if args.resume:
        saved = torch.load(args.resume)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["next"]
    for epoch in range(args.epochs):
        for batch, ids in enumerate(loader):
            if (epoch, batch) < first:
                continue
            logits = model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {epoch} batch {batch:2d} loss {loss.item():.4f}", flush=True)
            if args.checkpoints and batch % 4 == 3:
                os.makedirs(args.checkpoints, exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "next": (epoch, batch + 1)},
                           os.path.join(args.checkpoints, f"epoch-{epoch}-batch-{batch:02d}.pt"))


if __name__ == "__main__":
    main()
