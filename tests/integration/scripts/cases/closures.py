"""Forward and backward run within the optimizer's step: LBFGS, or any optimizer with a closure, as Lightning calls it."""
import sys

import torch

import eager

eager.without_compiler()
torch.manual_seed(5)
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(128, 128), torch.nn.Tanh())])
if sys.argv[1] == "lbfgs":
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=4)
else:
    optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(8, 20000, 128)


def closure():
    optimizer.zero_grad()
    loss = model(data[step]).square().mean()
    loss.backward()
    return loss


for step in range(8):
    print(step, optimizer.step(closure).item().hex(), flush=True)
