"""A training in as many ranks as its launcher makes, over gloo: prints the losses of each step and a digest of the
weights, from rank 0."""
import hashlib
import os

import torch
import torch.distributed as dist

torch.manual_seed(1), torch.set_num_threads(1)
if os.environ.get("WORLD_SIZE"):
    dist.init_process_group("gloo")
rank = dist.get_rank() if dist.is_initialized() else 0
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(400, 400), torch.nn.ReLU())])
trained = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
data = torch.randn(8, 256, 400, generator=torch.Generator().manual_seed(7 + rank))
for step in range(8):
    optimizer.zero_grad()
    loss = trained(data[step]).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print("step", step, loss.item().hex(), flush=True)
if rank == 0:
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), flush=True)
if dist.is_initialized():
    dist.destroy_process_group()
