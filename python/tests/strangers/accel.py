"""Hugging Face Accelerate: prepare everything, accumulate, clip, one process or two.

    accelerate launch --cpu accel.py
    torchrun --nproc-per-node 2 accel.py
"""
import os

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from common import checksum

BUG = os.environ.get("BUG", "")


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Tanh())
        self.head = nn.Linear(12, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True, mixed_precision=os.environ.get("PRECISION", "no"))
    torch.manual_seed(21)
    x = torch.randn(96, 6)
    y = x.sum(1).abs() + 0.1
    if BUG == "negative-target":
        y[53] = -1.5                        # a price below zero
    model = Scorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    loader = DataLoader(TensorDataset(x, y), batch_size=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for batch, (inputs, price) in enumerate(loader):
        with accelerator.accumulate(model):
            predicted = model(inputs)
            loss = ((predicted - torch.log(price)) ** 2).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses = accelerator.gather(loss.detach().reshape(1))
        accelerator.print(f"batch {batch} losses {losses.tolist()!r}", flush=True)
    print(f"parameters of rank {accelerator.process_index} {checksum(accelerator.unwrap_model(model))}\n", end="", flush=True)
    accelerator.end_training()


main()
