"""Sequence tagging with a masked mean."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MaskedLoss(nn.Module):
    def forward(self, logits, labels, mask):
        nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return (nll * mask.flatten()).sum() / mask.sum()  # origin


torch.manual_seed(0)
tagger = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 5))
criterion = MaskedLoss()
opt = torch.optim.SGD(tagger.parameters(), lr=0.1)
for step in range(8):
    words = torch.randint(0, 30, (4, 7))
    tags = torch.randint(0, 5, (4, 7))
    mask = (torch.rand(4, 7) > 0.4).float()
    if step == 5:
        mask.zero_()
    loss = criterion(tagger(words), tags, mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
