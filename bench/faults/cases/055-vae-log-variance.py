"""Variational autoencoder; one image is an outlier."""
import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(16, 32)
        self.mu, self.logvar = nn.Linear(32, 4), nn.Linear(32, 4)
        self.dec = nn.Linear(4, 16)

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar.clamp(max=20))
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar):
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)  # origin
    return F.mse_loss(recon, x) + kl.mean()


torch.manual_seed(0)
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
for step in range(8):
    x = torch.rand(16, 16)
    if step == 5:
        x[9] = 4000 * (vae.logvar.weight.detach() @ vae.enc.weight.detach())[0].sign()
    recon, mu, logvar = vae(x)
    loss = elbo(recon, x, mu, logvar)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} elbo {loss.item():.3f}")
