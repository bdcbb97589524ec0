"""Gradients averaged by hand; rank 1 builds its model empty and forgets to ask rank 0 for the weights of one layer."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
if rank == 1:
    for p in net.parameters():
        p.data = torch.empty_like(p)
for name, p in net.named_parameters():
    if name != "2.bias":
        dist.broadcast(p.data, 0)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(4, 6)
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 2
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
