"""Mixed precision with a GradScaler; sensor data with a gap."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(4)
        self.x = torch.randn(80, 10, generator=g)
        self.y = self.x.sum(1, keepdim=True)
        self.x[41, 7] = float("nan")
        self.x[51, 2] = float("nan")
        self.x[62, 2] = float("nan")

    def __len__(self):
        return 80

    def __getitem__(self, i):
        return self.x[i], self.y[i]


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step, (x, y) in enumerate(DataLoader(Sensors(), batch_size=8)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    print(step, loss.item(), scaler.get_scale())
