"""PPO in one file: rollouts without gradients, several epochs of minibatches, advantages normalised per minibatch."""
import os

import torch
import torch.nn as nn
from torch.distributions import Normal

from common import checksum

BUG = os.environ.get("BUG", "")


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor_mean = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        dist = Normal(self.actor_mean(x), self.actor_logstd.exp())
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action).sum(1), dist.entropy().sum(1), self.critic(x)


torch.manual_seed(1)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
for iteration in range(4):
    with torch.no_grad():
        obs = torch.randn(32, 3)
        actions, logprobs, _, values = agent.get_action_and_value(obs)
        rewards = -(actions - obs[:, :2]).pow(2).sum(1)
        if BUG == "constant-reward" and iteration == 1:
            rewards = values.flatten() + 1.0        # the environment hung: every advantage is the same
        advantages = rewards - values.flatten()
        returns = advantages + values.flatten()
        if BUG == "constant-reward" and iteration == 1:
            advantages = torch.ones_like(advantages)
    order = torch.randperm(32)
    for start in range(0, 32, 16):
        mb = order[start:start + 16]
        _, newlogprob, entropy, newvalue = agent.get_action_and_value(obs[mb], actions[mb])
        ratio = (newlogprob - logprobs[mb]).exp()
        mb_advantages = advantages[mb]
        mb_advantages = (mb_advantages - mb_advantages.mean()) / mb_advantages.std()
        pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
        v_loss = 0.5 * ((newvalue.view(-1) - returns[mb]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        print(f"iteration {iteration} loss {loss.item()!r}", flush=True)
print("parameters", checksum(agent))
