"""Resume: the optimizer state in the file holds a NaN."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "ckpt.pt")


def build():
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    return net, torch.optim.Adam(net.parameters(), lr=1e-3)


def prepare():
    """What yesterday's job left behind."""
    net, opt = build()
    state = {"step": torch.tensor(40.0), "exp_avg": torch.zeros(12, 6), "exp_avg_sq": torch.full((12, 6), 1e-4)}
    for p in net.parameters():
        opt.state[p] = {k: torch.zeros_like(p) if k != "step" else v for k, v in state.items()}
    bad = opt.state[net[2].weight]["exp_avg"]
    bad.view(-1)[5] = float("nan")
    torch.save({"model": net.state_dict(), "opt": opt.state_dict()}, path)


prepare()
net, opt = build()
checkpoint = torch.load(path)
net.load_state_dict(checkpoint["model"])
opt.load_state_dict(checkpoint["opt"])
for step in range(4):
    x = torch.randn(8, 6)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
