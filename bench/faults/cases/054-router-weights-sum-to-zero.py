"""Top-2 routing with expert dropout; the weights of the chosen experts are scaled to sum to 1."""
import torch
import torch.nn as nn


class Router(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.gate = nn.Linear(d, n, bias=False)

    def forward(self, x, alive):
        p = torch.sigmoid(self.gate(x)) * alive
        w, idx = p.topk(2, dim=-1)
        return w / w.sum(-1, keepdim=True), idx  # origin


class Layer(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        self.router = Router(d, n)
        self.w = nn.Parameter(torch.randn(n, d, d) * 0.1)

    def forward(self, x, alive):
        w, idx = self.router(x, alive)
        picked = self.w[idx]
        return (w[..., None] * torch.einsum("bd,bkde->bke", x, picked)).sum(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.moe = Layer()
        self.head = nn.Linear(8, 2)

    def forward(self, x, alive):
        return self.head(self.moe(x, alive))


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(10):
    x, alive = torch.randn(8, 8), (torch.rand(8, 4) > 0.2).float()
    alive[:, 0] = 1.0
    if step == 7:
        alive[5] = 0.0
    loss = nn.functional.cross_entropy(net(x, alive), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
