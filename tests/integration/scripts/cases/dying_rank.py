"""Two ranks over gloo, of which the second is killed in its fifth step."""
import os
import signal

import torch
import torch.distributed as dist

torch.manual_seed(1), torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Sequential(*[torch.nn.Linear(400, 400) for _ in range(6)])
trained = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(8):
    if step == 5 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    trained(torch.randn(256, 400)).square().mean().backward()
    optimizer.step()
