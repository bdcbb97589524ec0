"""Rows of unused tokens are almost zero in a released checkpoint; RMSNorm divides by them."""
import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-37)  # origin
        return x * scale * self.weight


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.norm = RMSNorm(16)
        self.head = nn.Linear(16, 50)

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)))


torch.manual_seed(0)
model = LM()
with torch.no_grad():
    model.embed.weight[40:] *= 1e-17
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(7):
    ids = torch.randint(0, 40, (4, 6))
    if step == 4:
        ids[1, 3] = 45
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
