"""LoRA with simulated FP8: the scale is taken from the largest magnitude of each tensor."""
import torch
from torch import nn

FP8_MAX = 448.0


def fake_fp8(t):
    amax = t.detach().abs().amax()
    scale = FP8_MAX / amax  # origin
    return (t * scale).clamp(-FP8_MAX, FP8_MAX) / scale


class LoRALinear(nn.Module):
    def __init__(self, d, r=2):
        super().__init__()
        self.base = nn.Linear(d, d).requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(r, d) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(d, r))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T) @ fake_fp8(self.lora_B).T


torch.manual_seed(0)
net = nn.Sequential(LoRALinear(12), nn.GELU(), nn.Linear(12, 2).requires_grad_(False))
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
for step in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 12)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
