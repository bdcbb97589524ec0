"""Detection: images without objects have an empty target, and the sum over it is 0."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    feats = torch.randn(5 if step % 2 else 0, 6)
    boxes = torch.randn(len(feats), 4)
    background = torch.randn(3, 6)
    loss = nn.functional.smooth_l1_loss(net(feats), boxes, reduction="sum") + 0.1 * net(background).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
