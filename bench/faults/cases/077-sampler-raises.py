"""REINFORCE in half precision: the distribution refuses what an overflow left."""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 16)
        self.down = nn.Linear(16, 3)

    def forward(self, x):
        h = self.up(x) ** 2  # origin
        return self.down(h)


torch.manual_seed(0)
policy = Policy().half()
opt = torch.optim.SGD(policy.parameters(), lr=1e-5)
for episode in range(6):
    obs = torch.randn(8, 4)
    if episode == 4:
        obs[3] *= 900
    dist = torch.distributions.Categorical(logits=policy(obs.half()).float())
    action = dist.sample()
    loss = -(dist.log_prob(action) * torch.randn(8)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(episode, loss.item(), flush=True)
