"""Gradients in half, summed over the ranks before they are divided."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Linear(4, 1, bias=False).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-7)
torch.manual_seed(rank)
for step in range(6):
    x = torch.rand(8, 4).half()
    goal = torch.zeros(8, 1)
    if step == 4:
        x = torch.full((8, 4), 200.0).half()
        goal = net(x).detach().float() + 100.0
    loss = (net(x).float() - goal).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)  # origin
        p.grad /= world
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
