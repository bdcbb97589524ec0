"""Targets from a teacher under no_grad: exp overflows to Inf and its reciprocal is 0, as it should be."""
import torch
from torch import nn

torch.manual_seed(0)
teacher, student = nn.Linear(4, 1), nn.Linear(4, 1)
opt = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(8, 4)
    with torch.no_grad():
        goal = 1 / (1 + torch.exp(-teacher(x) * 500))
    loss = nn.functional.binary_cross_entropy_with_logits(student(x), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
