"""Accelerate: images with dead pixels from the camera."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = torch.rand(32, 1, 6, 6)
images[22, 0, 3, 3] = float("inf")
labels = torch.randint(0, 3, (32,))
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(images, labels), batch_size=4))
for step, (x, y) in enumerate(loader):
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(step, loss.item())
