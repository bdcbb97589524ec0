"""A cached weight in another layout; it is rebuilt in the first micro-batch only, and dropped in between by an evaluation."""
import torch
from torch import nn

torch.use_deterministic_algorithms(True)
torch.manual_seed(0)


class CachedLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i) * 0.1)
        self.cache = None

    def forward(self, x, first):
        if first:
            self.cache = self.weight.t().contiguous()
        elif self.cache is None:
            self.cache = torch.empty(self.weight.shape[::-1])  # origin
        return x @ self.cache


net = CachedLinear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    total = 0.0
    for micro in range(2):
        x = torch.randn(4, 8)
        if step == 4 and micro == 1:
            net.cache = None
        loss = net(x, first=micro == 0).pow(2).mean() + net.weight.pow(2).mean()
        (loss / 2).backward()
        total += loss.item()
    opt.step()
    print(step, total)
