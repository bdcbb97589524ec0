"""Two towers and a contrastive loss, as in CLIP: embeddings divided by their norm, a learned temperature."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import checksum

BUG = os.environ.get("BUG", "")


class Tower(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(features, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False))

    def forward(self, x):
        x = self.proj(x)
        return x / x.norm(dim=-1, keepdim=True)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = Tower(12)
        self.text = Tower(6)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        return self.logit_scale.exp() * self.image(image) @ self.text(text).t()


torch.manual_seed(4)
model = TwoTowers()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
for step in range(9):
    image, text = torch.randn(10, 12), torch.randn(10, 6)
    if BUG == "black-image" and step == 6:
        image[7] = 0.0                      # all black
    logits = model(image, text)
    labels = torch.arange(10)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, 4.6)
    print(f"step {step} loss {loss.item()!r}", flush=True)
print("parameters", checksum(model))
