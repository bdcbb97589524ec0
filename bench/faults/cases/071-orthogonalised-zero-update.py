"""Muon-like optimizer: the momentum matrix is divided by its norm."""
import torch
from torch import nn


class Muonlet(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(g["momentum"]).add_(p.grad)
                x = buf / buf.norm()  # origin
                for _ in range(3):
                    x = 1.5 * x - 0.5 * x @ x.T @ x
                p.add_(x, alpha=-g["lr"])


torch.manual_seed(0)
frozen_gate = nn.Parameter(torch.zeros(()), requires_grad=False)
a, b, extra = nn.Linear(6, 6, bias=False), nn.Linear(6, 2, bias=False), nn.Linear(6, 6, bias=False)
opt = Muonlet([a.weight, b.weight, extra.weight])
for step in range(4):
    x = torch.randn(8, 6)
    h = torch.relu(a(x)) + frozen_gate * extra(x)
    loss = nn.functional.cross_entropy(b(h), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
