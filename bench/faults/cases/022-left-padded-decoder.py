"""Seq2seq decoder with hand-written causal attention; targets are padded on the left."""
import math

import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.d = heads, d
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(self.d, 2))
        att = q @ k.transpose(-2, -1) / math.sqrt(C // self.heads)
        causal = torch.tril(torch.ones(T, T, dtype=torch.bool))
        att = att.masked_fill(~(causal & keep[:, None, None, :]), float("-inf"))
        att = torch.softmax(att, dim=-1)  # origin
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.attn = CausalAttention(d, 2)

    def forward(self, x, keep):
        return x + self.attn(self.ln(x), keep)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.head = nn.Linear(16, 32)

    def forward(self, ids, keep):
        x = self.tok(ids)
        for b in self.blocks:
            x = b(x, keep)
        return self.head(x)


torch.manual_seed(0)
model = Decoder()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(1, 32, (3, 8))
    keep = torch.ones(3, 8, dtype=torch.bool)
    if step >= 3:
        keep[1, :2] = False
    logits = model(ids, keep)
    nll = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    loss = nll[keep[:, 1:].flatten()].mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
