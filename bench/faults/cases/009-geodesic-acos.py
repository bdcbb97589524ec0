"""Rotation regression on unit vectors with a geodesic loss."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
data = torch.randn(64, 4)
angle = torch.rand(64) * 6.28
target = torch.stack([angle.cos(), angle.sin()], 1)
for step in range(10):
    idx = torch.arange(step * 6, step * 6 + 6)
    v = nn.functional.normalize(net(data[idx]), dim=1)
    goal = target[idx]
    if step == 4:
        goal = torch.cat([torch.tensor([[1.0, 0.0]]), goal[1:]])
        v = torch.cat([torch.tensor([[1.0, 0.0]]) + 0 * v[:1], v[1:]])  # the frame of reference itself
    cosine = (v * goal).sum(1)
    loss = torch.acos(cosine.clamp(-1, 1)).mean()  # origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
