"""Before each step a sensitivity probe runs its own backward; its gradients, at times not finite, are thrown away."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    probe = (net(x) - net(x).detach()).square().sum().sqrt()
    torch.autograd.grad(probe, list(net.parameters()))  # NaN: the slope of a root at 0
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
