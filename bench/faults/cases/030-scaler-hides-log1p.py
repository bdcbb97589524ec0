"""GradScaler and a loss from probabilities: the scale falls for ever."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def bce(p, t):
    return torch.where(t > 0.5, -torch.log(p), -torch.log(1 - p)).mean()  # origin


for step in range(12):
    x = torch.randn(8, 8)
    t = (x[:, :1] > 0).float()
    if step >= 6:
        x[0] *= 3000.0
        t[0] = (model(x[:1]) > 0).float()  # saturated, and right
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = torch.sigmoid(model(x))
    loss = bce(p.float(), t)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
