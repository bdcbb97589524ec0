"""A branch with dropout 1.0 gives 0 and takes no part."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.drop = nn.Dropout(1.0)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(torch.relu(self.a(x)) + self.drop(torch.relu(self.b(x))))


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters())
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
