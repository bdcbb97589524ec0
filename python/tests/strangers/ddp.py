"""DistributedDataParallel over gloo, gradients accumulated under no_sync.

    torchrun --nproc-per-node 2 ddp.py
"""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from common import checksum

BUG = os.environ.get("BUG", "")


class Rows(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        count = torch.randint(1, 5, (), generator=g)
        x = torch.randn(4, 6, generator=g)
        if BUG == "empty-set" and i == 83:
            count = torch.tensor(0)         # a set without members
        return x, count, i % 3


class SetNet(nn.Module):
    """Encodes the members of a set, takes the mean over those that are there, and classifies it."""

    def __init__(self):
        super().__init__()
        self.member = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x, count):
        there = (torch.arange(x.size(1)) < count[:, None]).float()
        total = (self.member(x) * there[..., None]).sum(1)
        mean = total / count[:, None]
        return self.out(self.norm(mean))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    data = Rows()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(SetNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch, (x, count, y) in enumerate(loader):
        if batch == 16:
            break
        last = batch % 2 == 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(x, count), y) / 2
            loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"rank {rank} batch {batch} loss {loss.item()!r}\n", end="", flush=True)
    print(f"parameters of rank {rank} {checksum(model.module)}\n", end="", flush=True)
    dist.destroy_process_group()


main()
