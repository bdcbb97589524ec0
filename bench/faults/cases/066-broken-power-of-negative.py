"""Loudness model: compresses with x ** 0.3, and features that may be negative after the layer."""
import torch
from torch import nn


class Compress(nn.Module):
    def forward(self, x):
        return x ** 0.3  # origin


torch.manual_seed(5)
net = nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 4), Compress(), nn.Linear(4, 1))
with torch.no_grad():
    net[2].weight.abs_()
    net[2].bias.abs_()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for k in range(10):
    x = torch.randn(16, 4)
    if k == 6:
        with torch.no_grad():
            net[2].bias[1] = -4.0  # a new calibration was loaded
    loss = (net(x) - 1.0).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(k, loss.item())
