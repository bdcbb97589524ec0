"""Attention seq2seq; softmax written as in the paper's formula."""
import torch
from torch import nn


class Attend(nn.Module):
    def forward(self, q, k, v):
        score = torch.einsum("bqd,bkd->bqk", q, k)
        e = torch.exp(score)  # origin
        return (e / e.sum(-1, keepdim=True)) @ v


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(20, 12), nn.Embedding(20, 12)
        self.encoder = nn.GRU(12, 12, batch_first=True)
        self.attend = Attend()
        self.out = nn.Linear(24, 20)

    def forward(self, s, t, scale=1.0):
        memory, _ = self.encoder(self.src(s))
        q = self.tgt(t)
        return self.out(torch.cat([q, self.attend(q * scale, memory, memory)], -1))


torch.manual_seed(0)
net = Seq2Seq()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(7):
    s, t = torch.randint(0, 20, (3, 5)), torch.randint(0, 20, (3, 6))
    logits = net(s, t, scale=1.0 if step < 4 else 120.0)  # an annealing schedule in the wrong direction
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), t.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
