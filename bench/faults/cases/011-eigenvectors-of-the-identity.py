"""Whitening layer through the eigenvectors of a covariance."""
import torch
from torch import nn


class Whiten(nn.Module):
    def forward(self, x):
        cov = x.T @ x / len(x)
        w, v = torch.linalg.eigh(cov)  # origin
        return x @ v / (w + 1e-3).sqrt()


torch.manual_seed(0)
front = nn.Linear(4, 4, bias=False)
net = nn.Sequential(front, Whiten(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(16, 4)
    if step == 3:
        with torch.no_grad():
            front.weight.copy_(torch.eye(4))
        x = torch.eye(4).repeat(4, 1)  # one-hot probes
    y = torch.randint(0, 2, (16,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
