"""scaled_dot_product_attention gives 0 for a row without a key."""
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16, padding_idx=0)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 2)

    def forward(self, ids):
        q, k, v = self.qkv(self.emb(ids)).view(ids.size(0), ids.size(1), 3, 2, 8).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=(ids != 0)[:, None, None, :])
        return self.out(h.transpose(1, 2).flatten(2).mean(1))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(8):
    ids = torch.randint(1, 30, (4, 6))
    ids[0, 4:] = 0
    if step == 5:
        ids[2] = 0
    loss = F.cross_entropy(net(ids), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
