#!/usr/bin/env python3
"""Trains a small model, and flips one bit of what is named when it trains under Sentinel: `sentinel verify` has to find
it. `verified.py random` draws what nobody can repeat, `verified.py threads` adds gradients up in the order in which
threads happen to come.

    verified.py [none|parameter|gradient|moment|random|threads [STEPS]]
"""
import os
import random
import sys
import threading
import time

import torch

PLANTED, STEP = sys.argv[1] if len(sys.argv) > 1 else "none", 8
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 39


def flip(tensor):
    tensor.detach().view(-1)[5:6].view(torch.int32).bitwise_xor_(1)


torch.manual_seed(os.getpid() if PLANTED == "random" else 1)
net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
rows = torch.randn(2048, 512)
under = "SENTINEL_PLAIN" not in os.environ
lock, chance = threading.Lock(), random.SystemRandom()


def add_late(gradient, part):
    time.sleep(chance.random() / 100)
    with lock:
        gradient += part


def add_in_threads(gradient):
    parts = [torch.full_like(gradient, 10.0 ** -power) for power in range(8)]
    threads = [threading.Thread(target=add_late, args=(gradient, part)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for step in range(1, STEPS + 1):
    optimizer.zero_grad()
    loss = net(rows).square().mean()
    loss.backward()
    if PLANTED == "threads":
        add_in_threads(net[2].bias.grad)
    if under and step == STEP and PLANTED != "none":
        weight = net[2].weight
        where = {"parameter": weight, "gradient": net[0].bias.grad, "moment": optimizer.state[weight]["exp_avg_sq"]}
        flip(where[PLANTED]) if PLANTED in where else None
    optimizer.step()
print(f"{STEPS} steps were made")
