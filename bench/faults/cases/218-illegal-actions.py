"""Policy gradient with illegal actions at -inf."""
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 6))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(8):
    obs = torch.randn(8, 5)
    legal = torch.rand(8, 6) > 0.3
    legal[:, 0] = True
    dist = torch.distributions.Categorical(logits=policy(obs).masked_fill(~legal, -torch.inf))
    action = dist.sample()
    loss = -(dist.log_prob(action) * torch.randn(8)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
