"""Accumulation in half: each micro-batch fits, their sum does not."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1, bias=False).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-7)
for step in range(6):
    for micro in range(3):
        x = torch.rand(8, 4).half()
        goal = torch.zeros(8, 1)
        if step == 3:
            x = torch.full((8, 4), 200.0).half()
            goal = net(x).detach().float() + 75.0
        loss = (net(x).float() - goal).pow(2).mean()
        loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, loss.item())
