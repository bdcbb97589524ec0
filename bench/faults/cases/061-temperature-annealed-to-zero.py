"""Gumbel-softmax with a temperature that is annealed linearly."""
import torch
from torch import nn


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(6, 5)
        self.codes = nn.Parameter(torch.randn(5, 6))

    def forward(self, x, tau):
        gumbel = -torch.empty(x.size(0), 5).exponential_().log()
        y = ((self.logits(x) + gumbel) / tau).softmax(-1)  # origin
        return y @ self.codes


torch.manual_seed(0)
vq = Quantizer()
opt = torch.optim.Adam(vq.parameters(), lr=1e-3)
for step in range(9):
    tau = max(0.0, 1.0 - step / 6)
    x = torch.randn(10, 6)
    loss = (vq(x, tau) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, tau, loss.item())
