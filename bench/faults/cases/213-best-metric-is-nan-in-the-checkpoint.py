"""The checkpoint holds best_metric = nan and a table of results that is not full yet."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
folder = tempfile.mkdtemp()
net = nn.Linear(6, 2)
opt = torch.optim.AdamW(net.parameters())
results = torch.full((8, 2), float("nan"))
best = float("nan")
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    results[step, 0] = loss.item()
    if step % 3 == 2:
        torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "best_metric": best, "results": results, "step": step},
                   os.path.join(folder, f"ckpt-{step}.pt"))
    print(step, loss.item())
state = torch.load(os.path.join(folder, "ckpt-5.pt"))
net.load_state_dict(state["model"])
print("resumed", state["step"], state["best_metric"])
