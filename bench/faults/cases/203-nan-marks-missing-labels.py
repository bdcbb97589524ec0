"""Multi-task regression: NaN in the targets means not measured."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(48, 6), torch.randn(48, 3)
y[torch.rand(48, 3) > 0.6] = float("nan")
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=6):
    seen = ~yb.isnan()
    loss = ((net(xb) - yb.nan_to_num()).square() * seen).sum() / seen.sum().clamp(min=1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
