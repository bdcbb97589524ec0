"""Mixed precision in half: the scale comes down from 2^24 at the start, and overflows when it grows."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**19, growth_interval=6)
for step in range(30):
    x = torch.randn(16, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True).half())
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    print(step, loss.item(), scaler.get_scale())
