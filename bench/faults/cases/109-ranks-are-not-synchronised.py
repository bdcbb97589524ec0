"""Two processes that believe they train together; nobody averages the gradients."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = nn.Linear(6, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(10 + rank)
for step in range(5):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print(rank, step, total.item() / 2, flush=True)
dist.destroy_process_group()
