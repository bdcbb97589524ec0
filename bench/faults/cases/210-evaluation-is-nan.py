"""Evaluation on an empty split: the loss is NaN, training does not mind."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.AdamW(net.parameters())
held_out = torch.empty(0, 5)
best = float("inf")
for step in range(8):
    x = torch.randn(6, 5)
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 3 == 2:
        net.eval()
        with torch.no_grad():
            value = net(held_out).square().mean()
        net.train()
        best = min(best, value.item())
        print("eval", value.item(), best)
    print(step, loss.item())
