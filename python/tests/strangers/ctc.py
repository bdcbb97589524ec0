"""Speech-like recognition: an LSTM with a CTC loss over packed sequences of different lengths."""
import os

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from common import checksum

BUG = os.environ.get("BUG", "")


class Recogniser(nn.Module):
    def __init__(self, features=6, hidden=12, classes=5):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, frames, lengths):
        packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(out).log_softmax(-1)


torch.manual_seed(11)
model = Recogniser()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
criterion = nn.CTCLoss(blank=0)
for step in range(8):
    lengths = torch.randint(8, 14, (4,))
    frames = pad_sequence([torch.randn(int(n), 6) for n in lengths], batch_first=True)
    target_lengths = torch.tensor([3, 2, 4, 3])
    targets = torch.randint(1, 5, (4, 4))
    if BUG == "short-clip" and step == 4:
        lengths[2] = 3                      # three frames cannot spell four letters
        frames[2, 3:] = 0
    log_probs = model(frames, lengths)
    loss = criterion(log_probs.transpose(0, 1), targets, lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    print(f"step {step} loss {loss.item()!r}", flush=True)
print("parameters", checksum(model))
