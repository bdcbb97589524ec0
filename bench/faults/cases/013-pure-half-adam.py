"""A diffusion toy, everything in half precision, the optimizer too."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(16, 16).half()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(32, 16).half()
    noise = torch.randn(32, 16).half()
    loss = (net(x) - noise).float().pow(2).mean() * 1e-3
    opt.zero_grad()
    loss.backward()
    opt.step()  # origin
    print(step, loss.item())
