"""A forked child closes what it inherited, as daemons, subprocess helpers and some loggers do, then reads its parent's
tensors."""
import os
import torch

import eager

eager.without_compiler()
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(10)], torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
kept = [torch.full((1 << 20,), float(k + 1)) for k in range(24)]
for step in range(7):
    optimizer.zero_grad()
    loss = model(torch.randn(32768, 64)).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, float(loss.detach()).hex(), flush=True)
    if step == 5:
        for closes in (False, True):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.dup2(write, 500)
                if closes:
                    os.closerange(3, 500)
                wrong = sum(not bool((t == k + 1).all()) for k, t in enumerate(kept))
                os.write(500, b"child %s: %d of 24 tensors wrong" % (b"closes" if closes else b"keeps", wrong))
                os._exit(0)
            os.close(write)
            print(os.read(read, 200).decode() or "child died", "status", os.waitpid(pid, 0)[1], flush=True)
print("parent", sum(not bool((t == k + 1).all()) for k, t in enumerate(kept)), "wrong")
