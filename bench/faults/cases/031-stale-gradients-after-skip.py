"""The skip path of a home-made scaler forgets to clear gradients."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 4).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
scale = 1024.0
for step in range(10):
    x = torch.randn(6, 8)
    if step == 4:
        x[0] *= 3000
    loss = (net(x.half()).float() ** 2).mean()  # origin
    (loss * scale).backward()
    if all(torch.isfinite(p.grad).all() for p in net.parameters()):
        for p in net.parameters():
            p.grad /= scale
        opt.step()
        opt.zero_grad()
    else:
        scale /= 2  # and the gradients stay
    print(step, loss.item(), scale)
