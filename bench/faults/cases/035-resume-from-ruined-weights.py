"""The last checkpoint was written after the NaN; the run goes on from it."""
import os
import tempfile

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
ruined = Net().state_dict()
ruined["head.weight"][2] = float("nan")
torch.save(ruined, path)

model = Net()
model.load_state_dict(torch.load(path))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(8, 8)
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 4, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
