"""Noise prediction turned into x0: divides by the noise level, which is 0 at the first timestep."""
import torch
from torch import nn

torch.manual_seed(0)
betas = torch.linspace(0.0, 0.02, 50)
abar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(50, 8)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


model = Denoiser()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(12):
    x0 = torch.randn(8, 8)
    t = torch.randint(1, 50, (8,))
    if step == 6:
        t[4] = 0
    noise = torch.randn_like(x0)
    xt = abar[t].sqrt()[:, None] * x0 + (1 - abar[t]).sqrt()[:, None] * noise
    pred_x0 = model(xt, t)
    eps = (xt - abar[t].sqrt()[:, None] * pred_x0) / (1 - abar[t]).sqrt()[:, None]  # origin
    loss = nn.functional.mse_loss(eps, noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
