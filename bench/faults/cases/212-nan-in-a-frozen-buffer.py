"""A buffer of per-class thresholds; NaN stands for not calibrated, and is read after training."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.register_buffer("threshold", torch.full((3,), float("nan")))
        self.register_buffer("lowest", torch.full((3,), float("inf")))

    def forward(self, x):
        y = self.fc(x)
        self.lowest = torch.minimum(self.lowest, y.detach().amin(0))
        return y


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), net.lowest.tolist())
