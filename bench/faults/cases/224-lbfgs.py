"""LBFGS with a strong Wolfe line search."""
import torch

torch.manual_seed(0)
x = torch.randn(32, 3)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
net = torch.nn.Linear(3, 1)
opt = torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")
for step in range(4):

    def closure():
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    print(step, opt.step(closure).item())
