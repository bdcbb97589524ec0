"""RMSProp as in the lecture notes, parameters in half."""
import torch
from torch import nn


class LectureRMSProp(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, decay=0.9, eps=1e-8):
        super().__init__(params, dict(lr=lr, decay=decay, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                v.mul_(group["decay"]).addcmul_(p.grad, p.grad, value=1 - group["decay"])
                p.sub_(group["lr"] * (p.grad / (v.sqrt() + group["eps"])))  # origin


torch.manual_seed(0)
emb = nn.Embedding(40, 8).half()
head = nn.Linear(8, 40).half()
opt = LectureRMSProp([*emb.parameters(), *head.parameters()])
for step in range(4):
    ids = torch.randint(0, 30, (24,))
    logits = head(emb(ids)).float()
    loss = nn.functional.cross_entropy(logits, ids)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
