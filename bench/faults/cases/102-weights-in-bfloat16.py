"""Weights in bfloat16 without a copy in float32: small updates are rounded away."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8).bfloat16()
with torch.no_grad():
    net.weight.fill_(1.0)
opt = torch.optim.SGD(net.parameters(), lr=1e-6)
for step in range(10):
    loss = net(torch.randn(8, 8).bfloat16()).float().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
