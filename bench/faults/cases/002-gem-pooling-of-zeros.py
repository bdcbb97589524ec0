"""Image retrieval with generalised-mean pooling."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GeM(nn.Module):
    def __init__(self, p=3.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        pooled = x.pow(self.p).mean(dim=(2, 3))
        return pooled.pow(1.0 / self.p)  # origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, bias=False)
        self.pool = GeM()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.pool(self.conv(x).abs()))


torch.manual_seed(3)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for it in range(10):
    images = torch.rand(8, 1, 10, 10)
    labels = torch.randint(0, 4, (8,))
    if it == 5:
        images[2] = 0  # a blank scan
    optimizer.zero_grad()
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    print(it, loss.item())
