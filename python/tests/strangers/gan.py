"""A GAN on rings of points, the loss written out as in the paper."""
import os

import torch
import torch.nn as nn

from common import checksum

BUG = os.environ.get("BUG", "")


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        return self.net(x)


torch.manual_seed(0)
G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))

for step in range(10):
    angle = torch.rand(32) * 6.28
    real = torch.stack([angle.cos(), angle.sin()], dim=1)
    if BUG == "unscaled" and step == 5:
        real = real * 1e6                       # one shard of the data was never normalised

    # discriminator
    opt_d.zero_grad()
    fake = G(torch.randn(32, 4))
    p_real = D(real)
    p_fake = D(fake.detach())
    loss_d = -torch.log(p_real).mean() - torch.log(1 - p_fake).mean()
    loss_d.backward()
    opt_d.step()

    # generator
    opt_g.zero_grad()
    loss_g = -torch.log(D(fake)).mean()
    loss_g.backward()
    opt_g.step()
    print(f"step {step} loss_d {loss_d.item()!r} loss_g {loss_g.item()!r}", flush=True)

print("parameters", checksum(G), checksum(D))
