"""A row of a frozen table is Inf and no batch asks for it."""
import torch
from torch import nn

torch.manual_seed(0)
table = nn.Embedding.from_pretrained(torch.cat([torch.randn(20, 6), torch.full((1, 6), float("inf"))]), freeze=True)
head = nn.Linear(6, 3)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(8):
    loss = nn.functional.cross_entropy(head(table(torch.randint(0, 20, (8,)))), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
