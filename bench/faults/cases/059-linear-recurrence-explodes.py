"""A linear recurrence without a squashing function, on sequences of growing length."""
import torch
from torch import nn


class LinearRNN(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.U = nn.Linear(3, d)
        self.W = nn.Linear(d, d, bias=False)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.W.in_features)
        for t in range(x.size(1)):
            h = self.W(h) + self.U(x[:, t])  # origin
        return h


torch.manual_seed(0)
rnn = LinearRNN(8)
with torch.no_grad():
    rnn.W.weight.copy_(torch.eye(8) * 1.6)
head = nn.Linear(8, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=1e-30)
for step in range(7):
    T = 20 if step < 5 else 220
    x = torch.randn(4, T, 3)
    loss = head(rnn(x)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
