"""Activation checkpointing with dropout, accumulation and a cosine schedule."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2)) for _ in range(3))
opt = torch.optim.AdamW(blocks.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
for step in range(6):
    for micro in range(2):
        x = torch.randn(4, 8)
        h = x
        for b in blocks:
            h = h + checkpoint(b, h, use_reentrant=False)
        loss = (h - x).square().mean() / 2
        loss.backward()
    nn.utils.clip_grad_norm_(blocks.parameters(), 1.0)
    opt.step()
    sched.step()
    opt.zero_grad()
    print(step, loss.item())
