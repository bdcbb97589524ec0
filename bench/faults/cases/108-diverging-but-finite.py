"""Momentum at the limit of stability: the loss rises, and nothing leaves the range."""
import torch

torch.manual_seed(0)
X = torch.randn(64, 4)
y = X @ torch.randn(4, 1)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=1.35, momentum=0.3)
for step in range(25):
    loss = (net(X) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
