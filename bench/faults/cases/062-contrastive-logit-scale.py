"""CLIP-like training; the logit scale is learned without the clamp of the paper."""
import torch
from torch import nn


class CLIPlet(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(10, 8), nn.Linear(6, 8)
        self.logit_scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, i, t):
        a = nn.functional.normalize(self.image(i), dim=1)
        b = nn.functional.normalize(self.text(t), dim=1)
        return self.logit_scale.exp() * a @ b.T  # origin


torch.manual_seed(0)
model = CLIPlet()
towers = [*model.image.parameters(), *model.text.parameters()]
opt = torch.optim.SGD([{"params": [model.logit_scale], "lr": 4000.0}, {"params": towers, "lr": 0.1}], lr=0.1)
for step in range(8):
    i, t = torch.randn(8, 10), torch.randn(8, 6)
    logits = model(i, t)
    loss = nn.functional.cross_entropy(logits, logits.argmax(1))  # pseudo-labels
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), model.logit_scale.item())
