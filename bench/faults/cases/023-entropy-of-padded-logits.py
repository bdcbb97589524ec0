"""Exploration bonus: entropy of a policy with padded actions."""
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 6))
opt = torch.optim.RMSprop(policy.parameters(), lr=1e-3)


def entropy(logits):
    p = logits.softmax(-1)
    terms = p * torch.log(p)  # origin
    return -torch.nan_to_num(terms).sum(-1).mean()


for step in range(10):
    obs = torch.randn(8, 5)
    logits = policy(obs)
    if step >= 6:  # from here on games with four actions are mixed in
        pad = torch.zeros(8, 6)
        pad[::2, 4:] = float("-inf")
        logits = logits + pad
    loss = (logits.logsumexp(-1) - logits[:, 0]).mean() - 0.01 * entropy(logits)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
