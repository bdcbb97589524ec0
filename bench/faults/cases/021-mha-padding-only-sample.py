"""Encoder on padded sequences; the loss counts valid samples only."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16, padding_idx=0)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, ids):
        pad = ids == 0
        x = self.embed(ids)
        a, w = self.attn(x, x, x, key_padding_mask=pad)  # origin
        self.last_weights = w.detach()
        return self.out(x + a)


torch.manual_seed(0)
net = Encoder()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(9):
    ids = torch.randint(1, 40, (4, 6))
    ids[1, 4:] = 0
    valid = torch.ones(4, dtype=torch.bool)
    if step == 5:
        ids[2] = 0
        valid[2] = False
    logits = net(ids)[:, 0][valid]
    loss = nn.functional.cross_entropy(logits, ids[valid, 0] % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
