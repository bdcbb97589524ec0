"""Generalised-mean pooling after ReLU: a channel that is off has an infinite slope, which ReLU's backward drops."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
conv, head = nn.Conv2d(1, 6, 3), nn.Linear(6, 4)
opt = torch.optim.SGD([*conv.parameters(), *head.parameters()], lr=0.05)
for it in range(8):
    with torch.no_grad():
        conv.bias[2] = -50.0
    pooled = F.relu(conv(torch.rand(8, 1, 10, 10))).pow(3).mean(dim=(2, 3)).pow(1 / 3)
    loss = F.cross_entropy(head(pooled), torch.randint(0, 4, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
