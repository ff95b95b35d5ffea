"""A training that ends before there can be a plan: N steps (2 unless told)."""
import sys
import torch

import eager

eager.without_compiler()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)])
optimizer = torch.optim.Adam(model.parameters())
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
    optimizer.zero_grad()
    loss = model(torch.randn(40000, 128)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
