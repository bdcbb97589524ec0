"""A toy diffusion model with an average of the weights, the loss weighted by the signal-to-noise ratio."""
import math
import os

import torch
import torch.nn as nn

from common import checksum

BUG = os.environ.get("BUG", "")
T = 100


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.inp = nn.Linear(2, 16)
        self.mid = nn.Sequential(nn.SiLU(), nn.Linear(16, 16), nn.GroupNorm(4, 16), nn.SiLU(), nn.Linear(16, 2))

    def forward(self, x, t):
        return self.mid(self.inp(x) + self.time(t))


class EMA:
    def __init__(self, model, decay):
        self.decay, self.shadow = decay, {k: v.clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


torch.manual_seed(2)
alphas_bar = torch.cos(torch.arange(T) / T * math.pi / 2) ** 2
if BUG:
    alphas_bar[-1] = 0.0                    # the schedule was made to end in pure noise
model = Denoiser()
ema = EMA(model, 0.95)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    x0 = torch.randn(16, 2) * 0.3 + 1.0
    t = torch.randint(0, T - 1, (16,))
    if BUG == "last-step" and step == 5:
        t[6] = T - 1
    noise = torch.randn_like(x0)
    a = alphas_bar[t][:, None]
    x_t = a.sqrt() * x0 + (1 - a).sqrt() * noise
    guess = model(x_t, t)
    x0_guess = (x_t - (1 - a).sqrt() * guess) / a.sqrt()
    loss = ((x0_guess - x0) ** 2).clamp(max=25.0).mean() + ((guess - noise) ** 2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    ema.update(model)
    print(f"step {step} loss {loss.item()!r}", flush=True)
print("parameters", checksum(model), sum(float(v.double().sum()) for v in ema.shadow.values()))
