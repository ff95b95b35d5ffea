"""FSDP2 in as many ranks as its launcher makes, over gloo: prints the losses of each step and a digest of the whole
weights, from rank 0."""
import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.manual_seed(1), torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(400, 400), torch.nn.ReLU())])
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
data = torch.randn(8, 2048, 400, generator=torch.Generator().manual_seed(7 + rank))
for step in range(8):
    optimizer.zero_grad()
    loss = model(data[step]).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print("step", step, loss.item().hex(), flush=True)
whole = b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters())
if rank == 0:
    print(hashlib.sha256(whole).hexdigest(), flush=True)
dist.destroy_process_group()
