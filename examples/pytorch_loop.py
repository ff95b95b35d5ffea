# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch training that knows nothing of Sentinel.

    python3 examples/pytorch_loop.py                                         plain
    sentinel record -o loop.sentinel -- python3 examples/pytorch_loop.py     where its memory goes
    sentinel run --fast 20% -- python3 examples/pytorch_loop.py              in a fifth of its memory

All three print the same losses, to the last bit.
"""
import argparse

import torch

parser = argparse.ArgumentParser(description="A small training, to run under Sentinel.")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--batch", type=int, default=32768)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=128)
args = parser.parse_args()

# Two runs with the same seed and the same threads compute the same numbers.
torch.manual_seed(1)

# Each layer keeps its activation, 16 MiB with the defaults, until the backward pass. Most of these bytes lie idle for
# most of a step: Sentinel moves them to the slow tier.
layers = [torch.nn.Sequential(torch.nn.Linear(args.width, args.width), torch.nn.Tanh()) for _ in range(args.layers)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
inputs = torch.randn(args.batch, args.width)
wanted = torch.tanh(inputs.roll(1, dims=1))

for step in range(args.steps):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()  # Sentinel takes this call as the end of a step
    print(f"step {step}  loss {loss.item():.9f}")
