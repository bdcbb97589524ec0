"""Masked language model on short sequences; the collator masks at random."""
import random

import torch
from torch import nn

VOCAB, MASK = 40, 39


def collate(batch):
    ids = torch.tensor(batch)
    labels = torch.full_like(ids, -100)
    for r in range(ids.size(0)):
        for c in range(ids.size(1)):
            if random.random() < 0.12:
                labels[r, c] = ids[r, c]
                ids[r, c] = MASK
    return ids, labels


class Bertlet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, VOCAB)

    def forward(self, ids, labels):
        logits = self.head(self.layer(self.emb(ids)))
        return nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))  # origin


random.seed(11)
torch.manual_seed(0)
model = Bertlet()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = [[random.randrange(38) for _ in range(5)] for _ in range(400)]
loader = torch.utils.data.DataLoader(data, batch_size=4, collate_fn=collate)
for step, (ids, labels) in enumerate(loader):
    if step == 40:
        break
    loss = model(ids, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
