"""Relative position bias; rows are shifted by their largest entry."""
import torch
from torch import nn


class Biased(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.qk = nn.Linear(d, 2 * d)

    def forward(self, x, bias):
        q, k = self.qk(x).chunk(2, -1)
        s = q @ k.transpose(1, 2) + bias
        s = s - s.amax(-1, keepdim=True)  # origin
        w = s.exp()
        return (w / w.sum(-1, keepdim=True)) @ x


torch.manual_seed(0)
layer = Biased()
out = nn.Linear(8, 1)
opt = torch.optim.AdamW([*layer.parameters(), *out.parameters()], lr=1e-3)
for step in range(8):
    x = torch.randn(2, 5, 8)
    bias = torch.zeros(2, 5, 5)
    bias[:, :, 4] = -torch.inf
    if step == 5:
        bias[1, 2] = -torch.inf
    loss = out(layer(x, bias)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
