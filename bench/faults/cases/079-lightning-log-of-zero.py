"""Lightning, manual optimization: a Poisson head whose rate is cut at 0."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Counts(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.rate = nn.Linear(4, 1)
        nn.init.constant_(self.rate.weight, 0.05)
        nn.init.ones_(self.rate.bias)

    def training_step(self, batch, batch_idx):
        x, n = batch
        rate = torch.relu(self.rate(x))
        loss = (rate - n * torch.log(rate)).mean()  # origin
        opt = self.optimizers()
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        print(batch_idx, loss.item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


L.seed_everything(0)
x = torch.randn(32, 4) * 0.1
x[21] = -100.0
n = torch.ones(32, 1)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = L.Trainer(max_epochs=1, accelerator="cpu", **quiet)
trainer.fit(Counts(), DataLoader(TensorDataset(x, n), batch_size=4))
