"""Continuous control: a Gaussian policy whose deviation may underflow."""
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(4, 8)
mean, spread = nn.Linear(8, 1), nn.Linear(8, 1)
params = [*body.parameters(), *mean.parameters(), *spread.parameters()]
opt = torch.optim.Adam(params, lr=1e-3)
for it in range(8):
    obs = torch.randn(12, 4)
    h = torch.tanh(body(obs))
    std = torch.exp(spread(h) * (1.0 if it < 5 else 900.0)).clamp(max=10.0)
    act = mean(h).detach() + 0.1 * torch.randn(12, 1)
    logp = -((act - mean(h)) ** 2) / (2 * std ** 2) - torch.log(std)  # origin
    loss = -logp.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
