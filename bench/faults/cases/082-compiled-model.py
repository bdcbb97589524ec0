"""torch.compile around a model with an unguarded ratio."""
import torch
from torch import nn


class Ratio(nn.Module):
    def forward(self, x, total):
        return x / total  # origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.ratio = Ratio()
        self.fc2 = nn.Linear(8, 2)

    def forward(self, x, total):
        return self.fc2(torch.tanh(self.ratio(self.fc1(x), total)))


torch.manual_seed(0)
net = torch.compile(Net(), backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(7):
    x, total = torch.randn(6, 4), torch.rand(6, 1) + 0.5
    if step == 4:
        x[1], total[1] = 0.0, 0.0
        with torch.no_grad():
            net.fc1.bias.zero_()
    loss = nn.functional.cross_entropy(net(x, total), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
