"""One hard batch lifts the gradient norm a hundred times; clipping holds."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(14):
    x = torch.randn(8, 8)
    y = x.sum(1, keepdim=True) * (1e4 if step == 6 else 1.0)
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    print(step, loss.item(), norm.item())
