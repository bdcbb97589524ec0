"""Own layer norm, one pass: E[x^2] - E[x]^2."""
import torch
from torch import nn


class FastNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(var + self.eps) * self.gain  # origin


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 32), FastNorm(32), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(24, 32)
    y = x.sum(1, keepdim=True)
    h = net[0](x)
    if step == 6:
        h = 3000.3 + 0.05 * h  # sensor with an offset
    loss = (net[2](net[1](h)) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
