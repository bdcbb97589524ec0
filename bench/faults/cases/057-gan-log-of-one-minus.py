"""The first GAN of a course: the discriminator's loss written from probabilities."""
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
og, od = torch.optim.Adam(G.parameters(), lr=2e-4), torch.optim.Adam(D.parameters(), lr=2e-4)
for epoch in range(6):
    real = torch.randn(16, 2) + 3
    z = torch.randn(16, 4)
    fake = G(z)
    if epoch == 4:
        fake = fake * 3000
    d_loss = -(torch.log(D(real)) + torch.log(1 - D(fake.detach()))).mean()  # origin
    od.zero_grad()
    d_loss.backward()
    od.step()
    g_loss = -torch.log(D(G(z))).mean()
    og.zero_grad()
    g_loss.backward()
    og.step()
    print(epoch, d_loss.item(), g_loss.item())
