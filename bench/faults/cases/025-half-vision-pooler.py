"""Vision tower in half: the pooler multiplies by the square root of the width."""
import torch
from torch import nn


class Pooler(nn.Module):
    def forward(self, x):
        return x.mean(1) * 33.9  # origin


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(12, 24)
        self.pooler = Pooler()
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 3)

    def forward(self, pixels):
        return self.head(self.norm(self.pooler(self.patch(pixels))))


torch.manual_seed(0)
tower = Tower().half()
opt = torch.optim.SGD(tower.parameters(), lr=1e-4)
for step in range(7):
    pixels = torch.rand(4, 9, 12)
    if step == 5:
        pixels[3] = pixels[3] * 12000 + 3000  # raw sensor counts
    loss = nn.functional.cross_entropy(tower(pixels.half()).float(), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, loss.item())
