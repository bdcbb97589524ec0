"""Sixty layers without normalisation, standard deviation 1 at width 64."""
import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, depth=60, width=64):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=1.0)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # origin
        return x


torch.manual_seed(0)
net = Deep()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(8, 64)
    loss = net(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
