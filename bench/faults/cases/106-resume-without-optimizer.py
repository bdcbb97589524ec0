"""Resume: the weights are loaded, the optimizer and the schedule begin anew."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "c.pt")
net = nn.Linear(6, 1)
for attempt in range(2):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    if attempt:
        net.load_state_dict(torch.load(path)["model"])
    for step in range(4):
        x = torch.randn(8, 6)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(attempt, step, loss.item())
    torch.save({"model": net.state_dict(), "opt": opt.state_dict()}, path)
