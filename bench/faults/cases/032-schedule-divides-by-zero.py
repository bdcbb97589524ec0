"""Warm-up whose length was read as 0 from a configuration."""
import numpy as np
import torch
from torch import nn

config = {"warmup": 0, "lr": 1e-3}
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.AdamW(net.parameters(), lr=config["lr"])


def lr_at(step):
    return config["lr"] * np.minimum(1.0, np.float64(step) / np.float64(config["warmup"]))


for step in range(4):
    for group in opt.param_groups:
        group["lr"] = lr_at(step)
    x = torch.randn(16, 8)
    loss = (net(x) - x.mean(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # origin
    print(step, loss.item(), opt.param_groups[0]["lr"])
