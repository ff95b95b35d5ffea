"""Gradients of four batches are added up before the optimizer steps: a step is what lies between two of its steps."""
import torch

import eager

eager.without_compiler()
torch.manual_seed(4)
model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)])
optimizer = torch.optim.Adam(model.parameters())
for step in range(8):
    optimizer.zero_grad()
    for batch in range(4):
        loss = model(torch.randn(20000, 128)).square().mean()
        loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
