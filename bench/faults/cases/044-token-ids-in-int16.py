"""Pretraining on token ids that were stored in 16 bits."""
import numpy as np
import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.wte = nn.Embedding(vocab, 8)
        self.head = nn.Linear(8, 64)

    def forward(self, ids):
        return self.head(self.wte(ids))


torch.manual_seed(0)
rng = np.random.default_rng(0)
tokens = rng.integers(0, 32000, size=400)
tokens[300] = 40000
stored = tokens.astype(np.int16)
model = LM(50000)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    ids = torch.from_numpy(stored[step * 50 : step * 50 + 50].astype(np.int64)).view(5, 10)
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten().abs() % 64)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), flush=True)
