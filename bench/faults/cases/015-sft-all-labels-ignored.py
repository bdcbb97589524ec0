"""Supervised fine-tuning: prompts are ignored, only completions are counted."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Chats(Dataset):
    def __init__(self, n=48, length=12):
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, 50, (n, length), generator=g)
        self.prompt = torch.randint(2, 9, (n,), generator=g)
        for i in (20, 21, 22, 23):
            self.prompt[i] = length + 3  # the prompt fills the window

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        labels = self.ids[i].clone()
        labels[: self.prompt[i]] = -100
        return {"input_ids": self.ids[i], "labels": labels}


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(50, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.lm_head = nn.Linear(16, 50)

    def forward(self, input_ids):
        return self.lm_head(self.rnn(self.tok(input_ids))[0])


torch.manual_seed(0)
model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, batch in enumerate(DataLoader(Chats(), batch_size=4)):
    logits = model(batch["input_ids"])
    target = batch["labels"][:, 1:].reshape(-1)
    loss = nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 50), target, ignore_index=-100)  # origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
