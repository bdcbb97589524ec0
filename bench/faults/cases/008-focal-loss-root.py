"""Detector head with a focal loss, gamma below 1."""
import torch
import torch.nn as nn

torch.manual_seed(2)


class FocalLoss(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, target):
        p = torch.sigmoid(logits)
        pt = torch.where(target > 0.5, p, 1 - p)
        weight = (1 - pt).pow(self.gamma)  # origin
        return (weight * nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")).mean()


head = nn.Linear(10, 3)
criterion = FocalLoss(gamma=0.5)
opt = torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-4)
for i in range(10):
    x = torch.randn(12, 10)
    t = (torch.rand(12, 3) > 0.5).float()
    if i == 5:
        x[0] *= 400.0
        t[0] = (head(x[0]) > 0).float()
    opt.zero_grad()
    loss = criterion(head(x), t)
    loss.backward()
    opt.step()
    print(i, loss.item())
