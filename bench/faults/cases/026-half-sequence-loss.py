"""Sequence scores summed in half precision."""
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(64, 8)
        self.lin = nn.Linear(8, 1)

    def forward(self, ids):
        return self.lin(self.emb(ids)).squeeze(-1)


torch.manual_seed(0)
net = Scorer().half()
opt = torch.optim.SGD(net.parameters(), lr=1e-7)
for step in range(6):
    T = 2000 if step != 3 else 60000  # one recording of an hour
    ids = torch.randint(0, 64, (1, T))
    cost = nn.functional.softplus(net(ids)) + 0.5
    loss = cost.sum()  # origin
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, loss.item())
