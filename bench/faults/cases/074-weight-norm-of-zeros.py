"""Weight normalisation over a layer that starts from zero."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.Linear(8, 3)
        nn.init.zeros_(layer.weight)  # zero-init the last layer
        self.out = weight_norm(layer)
        self.body = nn.Linear(5, 8)

    def forward(self, x):
        return self.out(torch.relu(self.body(x)))  # origin


torch.manual_seed(0)
net = Head()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 5)), torch.randint(0, 3, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
