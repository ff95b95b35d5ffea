"""A training of some MiB that prints the loss of each step and a digest of its weights: shared.py SEED STEPS."""
import hashlib
import sys

import torch

seed, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(seed), torch.set_num_threads(1)
model = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(400, 400), torch.nn.ReLU())])
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(steps):
    data = torch.randn(2048, 400, generator=torch.Generator().manual_seed(1000 * seed + step))
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item().hex(), flush=True)
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest(), flush=True)
