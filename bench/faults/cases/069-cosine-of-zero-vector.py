"""Word similarity: cosine written out."""
import torch
import torch.nn as nn


class Cosine(nn.Module):
    def forward(self, a, b):
        unit = a / a.norm(dim=-1, keepdim=True)  # origin
        return (unit * nn.functional.normalize(b, dim=-1)).sum(-1)


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(30, 8, mode="sum", padding_idx=0)
        self.cosine = Cosine()

    def forward(self, left, right):
        return self.cosine(self.words(left), self.words(right))


torch.manual_seed(0)
model = Pairs()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    left, right = torch.randint(1, 30, (6, 4)), torch.randint(1, 30, (6, 4))
    if step == 7:
        left[3] = 0  # an empty query
    loss = (model(left, right) - 0.5).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
