"""A loss scaler of one's own: it doubles after every good step and knows no upper limit."""
import math

import torch
from torch import nn


class LossScaler:
    def __init__(self):
        self.scale = 2.0**100

    def update(self, overflow):
        self.scale = self.scale / 2 if overflow else self.scale * 16


torch.manual_seed(0)
net = nn.Linear(6, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = LossScaler()
for step in range(14):
    x = torch.zeros(4, 6)
    loss = (net(x) * 0).sum()
    scaled = loss * scaler.scale  # origin
    opt.zero_grad()
    scaled.backward()
    for p in net.parameters():
        p.grad /= scaler.scale
    opt.step()
    scaler.update(overflow=not math.isfinite(loss.item()))
    print(step, loss.item(), scaler.scale)
