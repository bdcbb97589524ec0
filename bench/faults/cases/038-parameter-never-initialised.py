"""A gain that nobody initialised; reproducible memory, since the author switched deterministic algorithms on."""
import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)


class Scale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(d))

    def forward(self, x):
        return x * self.gain


net = nn.Sequential(nn.Linear(8, 8), Scale(8), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(4, 8)
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
