"""Mixture of experts: each expert reports the mean of its tokens for a balance term."""
import torch
from torch import nn


class MoE(nn.Module):
    def __init__(self, d=8, experts=3):
        super().__init__()
        self.router = nn.Linear(d, experts)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(experts))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        choice = p.argmax(-1)
        out, balance = torch.zeros_like(x), 0.0
        for e, expert in enumerate(self.experts):
            mine = choice == e
            out[mine] = expert(x[mine])
            balance = balance + p[mine, e].mean()  # origin
        return out, balance


torch.manual_seed(0)
moe = MoE()
with torch.no_grad():
    moe.router.weight *= 5
opt = torch.optim.Adam(moe.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(32, 8)
    if step == 6:
        x = x[:1].repeat(32, 1)
    out, balance = moe(x)
    loss = (out - x).pow(2).mean() + 0.01 * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
