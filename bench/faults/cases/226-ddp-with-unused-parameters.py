"""Two ranks; each step uses one of two heads."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x, which):
        return (self.a if which else self.b)(torch.relu(self.body(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
net = DDP(TwoHeads(), find_unused_parameters=True)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
torch.manual_seed(5 + dist.get_rank())
for step in range(6):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 6), step % 2), torch.randint(0, 2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(dist.get_rank(), step, loss.item(), flush=True)
dist.destroy_process_group()
