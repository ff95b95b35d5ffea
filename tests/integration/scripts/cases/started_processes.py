#!/usr/bin/env python3
"""started_processes.py METHOD: two processes that multiprocessing starts train, each a model of its own, from batches
that a worker which multiprocessing spawned loads. Prints each one's last loss, and whether the worker has Sentinel."""
import sys

import torch
from torch.utils.data import DataLoader, Dataset

STEPS = 8


class Batches(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, number):
        with open("/proc/self/maps") as maps:
            managed = "libsentinel" in maps.read()
        return torch.full((32, 512), (number + 1) / 10), managed


def train(rank, losses):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(24)))
    optimizer = torch.optim.Adam(model.parameters())
    managed = False
    for batch, loader_managed in DataLoader(Batches(), batch_size=None, num_workers=1,
                                            multiprocessing_context="spawn"):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        managed |= loader_managed
    losses.put(f"rank {rank}: {float(loss.detach()).hex()}, its worker {'has' if managed else 'is without'} Sentinel")


def main(method):
    context = torch.multiprocessing.get_context(method)
    losses = context.SimpleQueue()
    ranks = [context.Process(target=train, args=(rank, losses)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    told = sorted(losses.get() for _ in ranks)
    for rank in ranks:
        rank.join()
    print(*told, [rank.exitcode for rank in ranks], sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
