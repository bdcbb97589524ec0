"""Self-supervised pretraining with a variance term (VICReg style)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.expand = nn.Linear(24, 12)

    def forward(self, x):
        return self.expand(self.body(x))


def variance(z):
    return F.relu(1.0 - z.var(dim=0).sqrt()).mean()  # origin


torch.manual_seed(0)
enc = Encoder()
opt = torch.optim.AdamW(enc.parameters(), lr=2e-3)
for step in range(9):
    x = torch.randn(16, 8)
    if step == 6:
        x = x[:1].repeat(16, 1)  # the sampler drew one image sixteen times
    a, b = enc(x), enc(x + 0.1 * torch.randn_like(x) * (step != 6))
    loss = F.mse_loss(a, b) + variance(a) + variance(b)
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
    print(f"step {step}: {loss.item():.5f}")
