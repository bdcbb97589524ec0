"""Triplet embeddings for near-duplicate detection; distance written out by hand."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(1)


def distance(a, b):
    return ((a - b) ** 2).sum(dim=1).sqrt()  # origin


for step in range(12):
    anchor = torch.randn(16, 12, generator=gen)
    positive = anchor + 0.1 * torch.randn(16, 12, generator=gen)
    negative = torch.randn(16, 12, generator=gen)
    if step == 7:
        positive[3] = anchor[3]  # the pair is the same photograph twice
    opt.zero_grad()
    ea, ep, en = net(anchor), net(positive), net(negative)
    loss = (distance(ea, ep) - distance(ea, en) + 0.5).clamp(min=0).mean()
    loss.backward()
    opt.step()
    print(f"{step} {loss.item():.4f}")
