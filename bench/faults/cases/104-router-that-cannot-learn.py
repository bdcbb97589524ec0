"""Top-1 routing: softmax after the choice is the constant 1."""
import torch
from torch import nn


class Top1(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        value, index = self.router(x).topk(1, -1)
        weight = value.softmax(-1)
        out = torch.stack([self.experts[int(i)](row) for i, row in zip(index, x)])
        return weight * out


torch.manual_seed(0)
net = Top1()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(6):
    x = torch.randn(8, 8)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
