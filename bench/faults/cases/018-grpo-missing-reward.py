"""Group-relative policy optimisation with a reward function that may fail."""
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)


def reward(prompt, action):
    score = float(prompt[action])
    return score if score < 2.6 else None  # the checker timed out


for it in range(14):
    prompts = torch.randn(4, 6)
    obs = prompts.repeat_interleave(4, 0)
    dist = torch.distributions.Categorical(logits=policy(obs))
    actions = dist.sample()
    rewards = torch.from_numpy(np.array([reward(o, a) for o, a in zip(obs, actions.tolist())], dtype=np.float32))
    groups = rewards.view(4, 4)
    adv = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    loss = -(dist.log_prob(actions) * adv.flatten()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(it, loss.item())
