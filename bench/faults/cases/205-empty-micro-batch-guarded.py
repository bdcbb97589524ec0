"""Accumulation by token count: a micro-batch without labels adds 0."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    ids = torch.randint(0, 20, (2, 3, 6))
    labels = ids.clone()
    labels[1, :, :] = -100
    count = (labels != -100).sum()
    for micro in range(2):
        loss = nn.functional.cross_entropy(net(ids[micro]).flatten(0, 1), labels[micro].flatten(), reduction="sum") / count
        loss.backward()
        print(step, micro, loss.item())
    opt.step()
    opt.zero_grad()
