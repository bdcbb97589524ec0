"""Data-parallel metric learning on two processes."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(100 + rank)
for step in range(8):
    a, b = torch.randn(4, 6, generator=gen), torch.randn(4, 6, generator=gen)
    if step == 5 and rank == 1:
        b[2] = a[2]
    z = net(torch.cat([a, b]))
    gap = (z[:4] - z[4:]).square().sum(1).sqrt()  # origin
    loss = (gap - 1).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        print(step, loss.item(), flush=True)
dist.destroy_process_group()
