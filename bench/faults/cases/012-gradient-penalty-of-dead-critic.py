"""WGAN with gradient penalty."""
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
optG = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
optD = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.0, 0.9))


def penalty(real, fake):
    mix = (0.5 * real + 0.5 * fake).requires_grad_(True)
    grad, = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)
    length = (grad ** 2).sum(1).sqrt()  # origin
    return ((length - 1) ** 2).mean()


for it in range(6):
    real = torch.randn(8, 2) + 2
    if it == 4:
        real[1] = -1e6 * torch.ones(2)
        with torch.no_grad():
            D[0].bias.fill_(-1.0)
            D[0].weight.abs_()
    fake = G(torch.randn(8, 2))
    lossD = D(fake.detach()).mean() - D(real).mean() + 10 * penalty(real, fake.detach())
    optD.zero_grad()
    lossD.backward()
    optD.step()
    lossG = -D(G(torch.randn(8, 2))).mean()
    optG.zero_grad()
    lossG.backward()
    optG.step()
    print(it, lossD.item(), lossG.item())
