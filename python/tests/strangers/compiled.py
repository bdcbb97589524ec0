"""A compiled model with an eager optimizer, and an embedding whose gradient is sparse."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import checksum

BUG = os.environ.get("BUG", "")


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        h = x + self.mlp(x)
        rms = h * torch.rsqrt((h * h).mean(-1, keepdim=True))
        return self.head(rms)


torch.manual_seed(9)
model = Bag()
model = torch.compile(model, backend=os.environ.get("BACKEND", "aot_eager"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
for step in range(8):
    x, y = torch.randn(12, 8), torch.randint(0, 6, (12,))
    if BUG == "no-epsilon" and step == 5:
        x[3] = 0.0                          # an empty row, while the biases are 0 again after a re-initialisation
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "mlp" in name and name.endswith("bias"):
                    parameter.zero_()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item()!r}", flush=True)
print("parameters", checksum(model))
