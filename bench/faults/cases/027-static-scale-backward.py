"""Half-precision training with a fixed loss scale, as in 2018."""
import torch
from torch import nn

SCALE = 4096.0
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).half()
master = [p.detach().float().requires_grad_() for p in model.parameters()]
opt = torch.optim.SGD(master, lr=1e-3)
for step in range(8):
    x = torch.randn(8, 16)
    y = x.sum(1, keepdim=True)
    if step == 5:
        y[0] = 900.0
    loss = ((model(x.half()).float() - y) ** 2).mean()  # origin
    (loss * SCALE).backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() / SCALE
        p.grad = None
    opt.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            p.copy_(m)
    print(step, loss.item())
