"""Padded frames are torch.full garbage; they are replaced before anything is computed."""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, frames, keep):
        frames = torch.where(keep[..., None], frames, torch.zeros_like(frames))
        h = torch.relu(self.enc(frames)) * keep[..., None]
        return self.out(h.sum(1) / keep.sum(1, keepdim=True))


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters())
for step in range(8):
    frames, keep = torch.randn(4, 6, 4), torch.ones(4, 6, dtype=torch.bool)
    keep[1, 3:], keep[2, 5:] = False, False
    frames[~keep] = float("nan")
    loss = nn.functional.cross_entropy(net(frames, keep), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
