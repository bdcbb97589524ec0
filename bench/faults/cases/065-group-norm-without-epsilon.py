"""GroupNorm with eps=0 over a blank picture."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential()
net.add_module("conv", nn.Conv2d(3, 8, 3, bias=False))
net.add_module("norm", nn.GroupNorm(2, 8, eps=0.0))
net.add_module("act", nn.ReLU())
net.add_module("pool", nn.AdaptiveAvgPool2d(1))
net.add_module("flat", nn.Flatten())
net.add_module("fc", nn.Linear(8, 2))
opt = torch.optim.AdamW(net.parameters())
for i in range(8):
    pictures = torch.rand(6, 3, 8, 8)
    if i == 4:
        pictures[0] = 0.0
    loss = nn.functional.cross_entropy(net(pictures), torch.randint(0, 2, (6,)))  # origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
