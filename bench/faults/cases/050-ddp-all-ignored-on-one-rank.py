"""Two ranks, each takes the mean over its own labels."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 12)
        self.head = nn.Linear(12, 5)

    def forward(self, ids, labels):
        logits = self.head(self.emb(ids))
        counted = labels.flatten() != -1
        nll = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().clamp(min=0), reduction="none")
        return (nll * counted).sum() / counted.sum()  # origin


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
net = DDP(Tagger())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(50 + rank)
for step in range(7):
    ids = torch.randint(0, 30, (3, 6))
    labels = ids % 5
    if step == 4 and rank == 1:
        labels[:] = -1  # a batch of prompts
    loss = net(ids, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(rank, step, loss.item(), flush=True)
dist.destroy_process_group()
