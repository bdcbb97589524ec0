"""Distillation: the loss of a sample is the mean over its response."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 10))
teacher = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 10)).eval().requires_grad_(False)
x = torch.randn(32, 6, 8)
mask = torch.ones(32, 6)
mask[torch.arange(32), torch.randint(1, 6, (32,))] = 0
mask[17] = 0  # prompt longer than the limit: the response was cut away
opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
step = 0
for xb, mb in DataLoader(TensorDataset(x, mask), batch_size=4):
    with torch.no_grad():
        goal = teacher(xb).softmax(-1)
    kl = F.kl_div(student(xb).log_softmax(-1), goal, reduction="none").sum(-1)
    per_sample = (kl * mb).sum(1) / mb.sum(1)  # origin
    loss = per_sample.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, "loss", loss.item())
    step += 1
