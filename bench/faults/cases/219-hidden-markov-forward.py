"""Forward algorithm in the log domain; forbidden transitions are -inf."""
import torch
from torch import nn


class HMM(nn.Module):
    def __init__(self, states=4, symbols=5):
        super().__init__()
        self.transition = nn.Parameter(torch.randn(states, states))
        self.emission = nn.Parameter(torch.randn(states, symbols))
        self.register_buffer("allowed", torch.ones(states, states).tril(1).bool())

    def forward(self, seq):
        trans = self.transition.masked_fill(~self.allowed, -torch.inf).log_softmax(1)
        emit = self.emission.log_softmax(1)
        alpha = torch.full((len(self.transition),), -1e4)
        alpha[0] = 0.0
        for symbol in seq:
            alpha = torch.logsumexp(alpha[:, None] + trans, 0) + emit[:, symbol]
        return -torch.logsumexp(alpha, 0)


torch.manual_seed(0)
hmm = HMM()
opt = torch.optim.Adam(hmm.parameters(), lr=0.05)
for step in range(8):
    loss = hmm(torch.randint(0, 5, (9,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
