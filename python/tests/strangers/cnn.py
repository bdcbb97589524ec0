"""An image classifier with BatchNorm, a DataLoader, torch's averaged model and an average kept by hand."""
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

from common import checksum

BUG = os.environ.get("BUG", "")


class Shapes(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.randn(3, 8, 8, generator=g) + (i % 4) * 0.2
        if BUG == "broken-image" and i == 21:
            image[1, 4, 4] = float("nan")       # the decoder gave up half way
        return image, i % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x + self.body(x))
        return self.fc(self.drop(x.mean((2, 3))))


def main():
    torch.manual_seed(7)
    model = Net()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    mine = copy.deepcopy(model)
    loader = DataLoader(Shapes(), batch_size=8, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")),
                        generator=torch.Generator().manual_seed(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=2 * len(loader))
    for epoch in range(2):
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            ema.update_parameters(model)
            with torch.no_grad():
                for a, b in zip(mine.parameters(), model.parameters()):
                    a.lerp_(b, 0.1)
            print(f"epoch {epoch} loss {loss.item()!r} lr {scheduler.get_last_lr()[0]!r}", flush=True)
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch} mean logit {model(torch.ones(2, 3, 8, 8)).mean().item()!r}")
        model.train()
    print("parameters", checksum(model), checksum(ema), checksum(mine))


if __name__ == "__main__":
    main()
