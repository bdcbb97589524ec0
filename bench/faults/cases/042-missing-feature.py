"""Tabular classifier with mini-batches in random order."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
table = torch.randn(120, 9)
label = (table.sum(1) > 0).long()
table[77, 4] = float("nan")  # missing in the export
loader = DataLoader(TensorDataset(table, label), batch_size=12, shuffle=True, generator=torch.Generator().manual_seed(5))
model = nn.Sequential(nn.Linear(9, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
step = 0
for epoch in range(1):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(epoch, step, loss.item())
        step += 1
