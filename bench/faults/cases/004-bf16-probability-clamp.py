"""Span tagger trained in bfloat16, loss written from probabilities."""
import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(16, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(torch.relu(self.enc(x))).squeeze(-1)


model = Tagger().to(torch.bfloat16)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


def span_loss(logits, target):
    p = torch.sigmoid(logits).clamp(1e-6, 1 - 1e-6)
    miss = torch.log1p(-p)  # origin
    return torch.where(target == 1, -torch.log(p), -miss).mean()


for i in range(8):
    x = torch.randn(6, 16, dtype=torch.bfloat16)
    y = torch.randint(0, 2, (6,))
    logits = model(x)
    if i == 4:
        y[0] = 1
        logits = logits + torch.tensor([30.0] + [0.0] * 5, dtype=torch.bfloat16)  # the gazetteer knows this name
    loss = span_loss(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
