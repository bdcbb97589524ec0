"""A learning rate from a sweep with an exponent that lost its sign."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=float("1e20"))
for step in range(4):
    x = torch.randn(8, 6)
    loss = net(x).square().mean()  # origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
