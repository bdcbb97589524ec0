"""An infinite second moment freezes a weight, and nothing ever shows a NaN."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
net = nn.Linear(6, 3)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for p in net.parameters():
    opt.state[p] = {"step": torch.tensor(10.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.ones_like(p)}
opt.state[net.weight]["exp_avg_sq"][1, 2] = float("inf")
torch.save(opt.state_dict(), path)

opt = torch.optim.Adam(net.parameters(), lr=1e-2)
opt.load_state_dict(torch.load(path))
for step in range(5):
    x = torch.randn(8, 6)
    loss = (net(x) - x[:, :3]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
