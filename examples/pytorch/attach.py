"""firstbad from within a program: names for the samples, the outcome of each update, and an update that no optimizer of torch
makes.

    python examples/pytorch/attach.py

Works with and without `firstbad run`. One reading is negative, and its logarithm is NaN.
"""
import torch
import torch.nn as nn

import firstbad

torch.manual_seed(0)
readings = torch.rand(60, 3) + 0.5
readings[41, 2] = -0.25
numbers = torch.arange(1000, 1060)              # what the data set calls them

model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
guard = firstbad.attach(model, optimizer, sample_ids=lambda batch: batch["number"])

for start in range(0, 60, 6):
    batch = {"x": readings[start:start + 6], "number": numbers[start:start + 6]}
    with guard.step(batch):
        loss = (model(batch["x"]) - torch.log(batch["x"]).sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if guard.last.skipped:
        print(f"step {guard.last.step} was left out: case {guard.last.case} in {guard.folder}")

# Weights that are no parameter, and a gradient that is nobody's .grad: the gate is asked.
w = torch.zeros(3)
for start in range(0, 60, 20):
    x = readings[start:start + 20]
    target = torch.log(x).sum(1)
    gradient = 2 * x.t() @ (x @ w - target) / 20
    if guard.check({"w": gradient}):
        w -= 0.1 * gradient
    else:
        print(f"step {guard.last.step} was left out as well; w is still {[round(v, 3) for v in w.tolist()]}")

print("parameters finite:", all(bool(p.isfinite().all()) for p in [*model.parameters(), w]))
guard.close()
