"""The skip path of the script leaves out scaler.update()."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
for step in range(6):
    x = torch.randn(8, 6) * (1e3 if step == 3 else 1e-1)
    loss = net(x).square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if not torch.isfinite(norm):
        continue
    scaler.step(opt)
    scaler.update()
    print(step, loss.item(), flush=True)
