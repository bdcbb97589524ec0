"""T5-like block in half precision: the projection down leaves the range."""
import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Linear(32, 64, bias=False)
        self.wo = nn.Linear(64, 32, bias=False)

    def forward(self, x):
        h = torch.relu(self.wi(x))
        return self.wo(h)  # origin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ff = FeedForward()

    def forward(self, x):
        return x + self.ff(x)


torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(32, 4)).half()
with torch.no_grad():
    model[1].ff.wi.weight.fill_(2.0)
    model[1].ff.wo.weight.abs_().add_(0.2)
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(6):
    x = torch.randn(4, 32)
    if step == 4:
        x[2] = 900.0
    out = model(x.half() * 0.5)
    loss = nn.functional.cross_entropy(out.float(), torch.tensor([0, 1, 2, 3]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
