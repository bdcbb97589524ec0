"""Hand-written causal attention: -inf above the diagonal."""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer("bias", torch.full((8, 8), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.transpose(1, 2) / 4 + self.bias).softmax(-1) @ v


torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(20, 16), Attention(), nn.Linear(16, 20))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(0, 20, (4, 8))
    loss = nn.functional.cross_entropy(net(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
