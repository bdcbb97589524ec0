"""PPO on a one-dimensional walk: advantages are normalised per minibatch."""
import torch
from torch import nn

torch.manual_seed(1)
actor = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
opt = torch.optim.Adam(actor.parameters(), lr=3e-4)


def update(obs, act, adv, old_logp):
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # origin
    dist = torch.distributions.Categorical(logits=actor(obs))
    ratio = torch.exp(dist.log_prob(act) - old_logp)
    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


rollout = 33
obs = torch.randn(rollout, 3)
with torch.no_grad():
    d = torch.distributions.Categorical(logits=actor(obs))
    act = d.sample()
    old = d.log_prob(act)
adv = torch.randn(rollout)
for epoch in range(2):
    for start in range(0, rollout, 8):
        sl = slice(start, start + 8)
        print(epoch, start, update(obs[sl], act[sl], adv[sl], old[sl]), flush=True)
