"""A probe head is trained by nobody: its gradient may be what it likes."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)
        self.probe = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.head(h), self.probe(h.detach())


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam([*net.body.parameters(), *net.head.parameters()], lr=1e-3)
for step in range(8):
    logits, probe = net(torch.randn(8, 6))
    length = (probe - probe).square().sum().sqrt()
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 2, (8,))) + 0.0 * length
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
