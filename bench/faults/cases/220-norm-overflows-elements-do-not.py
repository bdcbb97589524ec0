"""Gradients near 1e20 in float32: their norm overflows, each of them is finite."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-22)
for step in range(6):
    x = torch.randn(4, 8)
    loss = (net(x) * 1e20).mean()
    opt.zero_grad()
    loss.backward()
    total = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    opt.step()
    print(step, loss.item(), total.item())
