"""REINFORCE on a pole that is balanced for a few steps; returns are normalised over the episode."""
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

from common import checksum

BUG = os.environ.get("BUG", "")


class Pole:
    """Angle and speed; falls at an angle above 0.5."""

    def reset(self, tilt):
        self.angle, self.speed = tilt, 0.0
        return torch.tensor([self.angle, self.speed])

    def step(self, action):
        self.speed += (0.3 if action == 1 else -0.3) + 0.2 * self.angle
        self.angle += 0.3 * self.speed
        return torch.tensor([self.angle, self.speed]), 1.0, abs(self.angle) > 0.5


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(2, 16)
        self.affine2 = nn.Linear(16, 2)

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=-1)


torch.manual_seed(543)
env, policy = Pole(), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(10):
    state = env.reset(0.49 if BUG == "falls-at-once" and episode == 5 else 0.05)
    log_probs, rewards = [], []
    if BUG == "falls-at-once" and episode == 5:
        env.speed = 3.0
    for _ in range(12):
        probs = policy(state)
        m = Categorical(probs)
        action = m.sample()
        log_probs.append(m.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
        if done:
            break
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = torch.stack([-log_prob * ret for log_prob, ret in zip(log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"episode {episode} length {len(rewards)} loss {loss.item()!r}", flush=True)
print("parameters", checksum(policy))
