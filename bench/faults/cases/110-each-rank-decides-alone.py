"""Own gradient averaging with an ordinary GradScaler: a rank that overflows skips alone."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**118, growth_interval=1000)
torch.manual_seed(20 + rank)
for step in range(6):
    x = torch.randn(8, 4)
    if step == 3 and rank == 1:
        x = x * 100
    loss = net(x).square().mean() * 1e-2
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)  # local: local SGD, weights are averaged every three steps
    scaler.update()
    if step % 3 == 2:
        for p in net.parameters():
            dist.all_reduce(p.data)
            p.data /= 2
    print(rank, step, loss.item(), scaler.get_scale(), flush=True)
dist.destroy_process_group()
