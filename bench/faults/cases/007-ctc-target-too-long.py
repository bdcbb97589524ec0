"""Small speech recogniser with CTC."""
import torch
import torch.nn as nn


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True)
        self.proj = nn.Linear(16, 6)

    def forward(self, feats):
        h, _ = self.rnn(feats)
        return self.proj(h).log_softmax(-1)


torch.manual_seed(0)
model = Recognizer()
criterion = nn.CTCLoss()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    feats = torch.randn(4, 12, 8)
    frames = torch.full((4,), 12)
    words = torch.randint(1, 6, (4, 5))
    length = torch.full((4,), 5)
    if step == 4:
        frames[1] = 3  # the recording was cut
    logp = model(feats).transpose(0, 1)
    loss = criterion(logp, words, frames, length)  # origin
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    print(step, loss.item())
