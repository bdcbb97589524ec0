"""Gaussian likelihood with a full covariance."""
import torch
from torch import nn


class Gaussian(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.L = nn.Parameter(torch.eye(d) + 0.1 * torch.randn(d, d))

    def forward(self, x, feats):
        cov = self.L @ self.L.T * feats.T @ feats
        return torch.logdet(cov), x.pow(2).sum()  # origin


torch.manual_seed(0)
model = Gaussian(3)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(7):
    feats = torch.randn(8, 3)
    if step == 5:
        feats[:, 2] = 0.0  # a channel that was switched off
    logdet, q = model(torch.randn(8, 3), feats.T @ feats / 8)
    loss = 0.5 * logdet + 0.01 * q
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
