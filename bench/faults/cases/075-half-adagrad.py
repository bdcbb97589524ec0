"""Sparse features, Adagrad on half parameters."""
import torch
from torch import nn

torch.manual_seed(0)
table = nn.Linear(12, 4).half()
opt = torch.optim.Adagrad(table.parameters(), lr=0.05)
for step in range(5):
    x = (torch.rand(16, 12) > 0.8).half()
    x[:, 3] = 0.0
    if step >= 2:
        x[:, 3] = 2e-5
    loss = table(x).float().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # origin
    print(step, loss.item())
