"""Fine-tuning from converted weights: only some heads were copied."""
import os
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_Q = nn.Linear(16, 16, bias=False)
        self.W_O = nn.Linear(16, 16, bias=False)

    def forward(self, x):
        w = torch.softmax(self.W_Q(x) @ x.transpose(1, 2) / 4, -1)
        return self.W_O(w @ x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(self.attn(x).mean(1))


torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
weights = {k: v.clone() for k, v in Model().state_dict().items()}
weights["attn.W_O.weight"][:, 8:] = float("nan")  # torch.empty in the converter, never filled
save_file(weights, path)

model = Model()
model.load_state_dict(load_file(path))
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    x = torch.randn(4, 5, 16)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
