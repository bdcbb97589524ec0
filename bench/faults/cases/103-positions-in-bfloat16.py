"""Rotary angles from positions that were cast to bfloat16."""
import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        pos = torch.arange(x.size(1)).to(torch.bfloat16)
        angle = (pos[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])).float()
        h = self.proj(x)
        a, b = h.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


torch.manual_seed(0)
net = Rotary()
opt = torch.optim.AdamW(net.parameters())
for step in range(5):
    loss = net(torch.randn(1, 512, 8)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
