"""A zero-initialised head: gradients below it are far smaller than Adam's epsilon."""
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(8, 8), nn.Linear(8, 1)
nn.init.constant_(head.weight, 1e-12)
opt = torch.optim.Adam(body.parameters(), lr=1e-3)
for step in range(6):
    loss = (head(torch.tanh(body(torch.randn(8, 8)))) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
