"""An autoencoder under Lightning, with automatic or manual optimization.

    python lit.py [--manual] [--precision bf16-mixed]
"""
import argparse
import logging
import os
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

from common import checksum

BUG = os.environ.get("BUG", "")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class AutoEncoder(L.LightningModule):
    def __init__(self, manual):
        super().__init__()
        self.automatic_optimization = not manual
        self.encoder = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 10))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        z = self.encoder(x)
        x_hat = self.decoder(z)
        per_row = ((x_hat - x) ** 2).mean(dim=1) / x.var(dim=1)      # relative to how much the row varies
        loss = per_row.mean()
        print(f"batch {self.current_epoch}.{batch_idx} loss {loss.item()!r}", flush=True)
        if not self.automatic_optimization:
            opt = self.optimizers()
            opt.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(opt, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
            opt.step()
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        if not self.automatic_optimization:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2), "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manual", action="store_true")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--accumulation", type=int, default=1)
    args = parser.parse_args()
    L.seed_everything(13, verbose=False)
    rows = torch.randn(40, 10)
    if BUG == "flat-row":
        rows[21] = 1.0                      # a sensor that was off: no variance
    loader = DataLoader(TensorDataset(rows), batch_size=5)
    model = AutoEncoder(args.manual)
    automatic = {} if args.manual else {"gradient_clip_val": 1.0, "accumulate_grad_batches": args.accumulation}
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, precision=args.precision, **automatic)
    trainer.fit(model, loader)
    print("parameters", checksum(model))


main()
