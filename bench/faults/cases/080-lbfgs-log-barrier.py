"""LBFGS with a closure; a line search is not used, and the barrier is crossed."""
import torch

torch.manual_seed(0)


class Portfolio(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((5,), 0.2))

    def forward(self, returns):
        gain = returns @ self.w
        return -torch.log(1 + gain).mean() + (self.w.sum() - 1).pow(2)  # origin


model = Portfolio()
opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=3)
for step in range(5):
    returns = 0.05 * torch.randn(20, 5)
    if step == 3:
        returns[4] = -6.0  # a crash

    def closure():
        opt.zero_grad()
        loss = model(returns)
        loss.backward()
        return loss

    print(step, opt.step(closure).item())
