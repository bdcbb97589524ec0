"""Linear regression by gradient descent, step size above the stability limit."""
import torch

torch.manual_seed(0)
X = torch.randn(64, 5) * 3
true = torch.randn(5, 1)
y = X @ true
model = torch.nn.Linear(5, 1, bias=False)
opt = torch.optim.SGD(model.parameters(), lr=0.9)
for i in range(40):
    r = model(X) - y
    loss = (r * r).mean()  # origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
