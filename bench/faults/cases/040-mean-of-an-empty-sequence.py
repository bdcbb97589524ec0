"""Utterance classifier: mean over the valid frames of each recording."""
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Pool(nn.Module):
    def forward(self, h, lengths):
        return torch.stack([row[:n].mean(0) for row, n in zip(h, lengths)])  # origin


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(5, 16)
        self.pool = Pool()
        self.cls = nn.Linear(16, 3)

    def forward(self, x, lengths):
        return self.cls(self.pool(torch.tanh(self.enc(x)), lengths))


torch.manual_seed(0)
clips = [torch.randn(int(n), 5) for n in torch.randint(2, 9, (40,))]
clips[26] = clips[26][:0]
data = [(c, i % 3) for i, c in enumerate(clips)]


def collate(items):
    x = pad_sequence([c for c, _ in items], batch_first=True)
    return x, [len(c) for c, _ in items], torch.tensor([y for _, y in items])


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step, (x, lengths, y) in enumerate(DataLoader(data, batch_size=5, collate_fn=collate)):
    loss = nn.functional.cross_entropy(net(x, lengths), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
