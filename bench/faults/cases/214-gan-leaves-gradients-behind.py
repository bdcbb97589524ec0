"""GAN: the generator's backward fills the discriminator's gradients with what nobody uses."""
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
og, od = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for it in range(6):
    real, z = torch.randn(8, 2) + 2, torch.randn(8, 4)
    fake = G(z)
    od.zero_grad()
    loss_d = bce(D(real), torch.ones(8, 1)) + bce(D(fake.detach()), torch.zeros(8, 1))
    loss_d.backward()
    od.step()
    og.zero_grad()
    loss_g = bce(D(fake), torch.ones(8, 1))
    loss_g.backward()
    og.step()
    print(it, loss_d.item(), loss_g.item())
