"""Very many tiny parameters, as table models have: `tiny_tensors.py NUMBER [foreach]`. Each has its gradient and the
state of Adam; one more parameter is larger than all others together. Prints each loss, and a hash of all, to the last
bit."""
import hashlib
import sys

import torch

import eager

eager.without_compiler()
torch.manual_seed(8)
torch.set_num_threads(1)
tiny = [torch.nn.Parameter(torch.randn(3 + i % 5)) for i in range(int(sys.argv[1]))]
large = torch.nn.Parameter(torch.randn(6_000_000))
adam = torch.optim.Adam([{"params": tiny}, {"params": [large], "lr": 1e-4}], 1e-2, foreach=sys.argv[2:] == ["foreach"])
for step in range(6):
    adam.zero_grad(set_to_none=True)
    loss = torch.cat(tiny).square().mean() + (large * 0.5).tanh().square().mean()
    loss.backward()
    adam.step()
    print("step", step, float(loss.detach()).hex(), flush=True)
moments = [adam.state[parameter]["exp_avg_sq"] for parameter in (*tiny, large)]
print(hashlib.sha256(torch.cat([*tiny, large, *moments]).detach().numpy().tobytes()).hexdigest())
