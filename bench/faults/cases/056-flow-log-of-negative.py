"""Normalising flow with an element-wise scale; its Jacobian is taken without the absolute value."""
import torch
from torch import nn


class Affine(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.s = nn.Parameter(torch.linspace(0.02, 1.0, d))
        self.t = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        z = x * self.s + self.t
        return z, torch.log(self.s).sum()  # origin


torch.manual_seed(0)
flow = Affine(4)
opt = torch.optim.SGD(flow.parameters(), lr=2e-2)
for step in range(20):
    x = torch.randn(32, 4) * torch.tensor([0.5, 1.0, 1.0, 1.0])
    if step == 14:
        x[:, 0] *= 9
    z, logdet = flow(x)
    loss = (0.5 * z.pow(2).sum(1)).mean() - 0.2 * logdet + 12.0 * z[:, 0].pow(2).mean() + 4.0 * flow.s[0]
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), flow.s[0].item())
