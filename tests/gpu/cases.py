#!/usr/bin/env python3
"""What a program may do with PyTorch on a device beside training straight on. Prints what must be the same whoever has
the device's memory: the loss of each step and, at the end, a hash of all that was trained.

    cases.py CASE [--device cuda]
"""
import argparse
import contextlib
import ctypes
import hashlib
import os
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 9
BATCH, WIDTH = 64, 32


class Residual(nn.Module):
    """Each sum's gradient is added up from two, and so is the shared weight's."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.bodies = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(8))
        self.last = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.first(x)
        for body in self.bodies:
            x = x + body(F.relu(body(x)))
        return self.last(x.mean((2, 3)).to(self.last.weight.device))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, n):
        generator = torch.Generator().manual_seed(n)
        return torch.randn(3, 32, 32, generator=generator), n % 10


def batches(workers=0):
    return torch.utils.data.DataLoader(Data(), BATCH, num_workers=workers)


class Training:
    def __init__(self, device, **optimizer):
        torch.manual_seed(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.device, self.model = device, Residual().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **optimizer)
        self.number = 0

    def loss(self, images, labels):
        made = self.model(images.to(self.device))
        return F.cross_entropy(made, labels.to(made.device))

    def update(self, loss):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        print(f"step {self.number}: {loss.item().hex()}", flush=True)
        self.number += 1

    def step(self, batch):
        loss = self.loss(*batch)
        loss.backward()
        self.update(loss)

    def end(self):
        digest = hashlib.sha256()
        state = self.optimizer.state_dict()["state"]
        trained = [*self.model.state_dict().values(),
                   *(value for one in state.values() for value in one.values() if torch.is_tensor(value))]
        for tensor in trained:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        print(f"{len(trained)} tensors: {digest.hexdigest()}", flush=True)


def straight(training):
    for batch in batches():
        training.step(batch)


def one_op_for_all_weights(training):
    """As trainers have it by default: fused, and gradients are clipped by the norm of all."""
    for batch in batches():
        loss = training.loss(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.update(loss)


def out_of_memory(training):
    """In the middle of a step, which is given up, and then in the next one, which goes on."""
    for number, batch in enumerate(batches()):
        if number in (5, 6):
            loss = training.loss(*batch)
            try:
                torch.empty(1 << 45, dtype=torch.uint8, device=training.device)
                raise SystemExit("32 TiB could be had")
            except RuntimeError as error:
                cuda = training.device == "cuda"
                assert not cuda or isinstance(error, torch.cuda.OutOfMemoryError), repr(error)
                print("out of memory", flush=True)
            if number == 6:
                loss.backward()
                training.update(loss)
            del loss
        else:
            training.step(batch)


def forked(training):
    """Workers that are forked while the device is in use."""
    training.step(next(iter(batches())))
    for batch in batches(workers=2):
        training.step(batch)


def another_thread(training):
    """The backward pass begins in a thread of its own."""
    for batch in batches():
        loss = training.loss(*batch)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        training.update(loss)


def a_stream_that_ends(training):
    """A stream that PyTorch did not make, in use for some steps and then destroyed."""
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    made = ctypes.c_void_p()
    for number, batch in enumerate(batches()):
        if number == 2:
            assert runtime.cudaStreamCreate(ctypes.byref(made)) == 0
        stream = torch.cuda.ExternalStream(made.value) if 2 <= number < 6 else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            training.step(batch)
        torch.cuda.current_stream().wait_stream(stream)
        if number == 5:
            with contextlib.suppress(ImportError):  # without Sentinel
                import sentinel
                sentinel.forget_stream(stream)
            assert runtime.cudaStreamDestroy(made) == 0


def statistics(training):
    """The figures that programs ask for move as they do in PyTorch."""
    memory = torch.cuda.memory
    for batch in batches():
        training.step(batch)
        before = memory.memory_allocated()
        extra = torch.zeros(16 << 20, device=training.device)  # 64 MiB
        assert before + (64 << 20) <= memory.memory_allocated() <= memory.max_memory_allocated()
        del extra
        memory.empty_cache()
        assert memory.memory_allocated() == before, (memory.memory_allocated(), before)
        memory.reset_peak_memory_stats()
        assert memory.max_memory_allocated() < before + (64 << 20)
        assert memory.memory_reserved() >= 0 and "Allocated memory" in memory.memory_summary()


def another_device(training):
    """The net's end lies on a second device, which is not managed, and is copied to by autograd's thread for it. Where
    there is one device alone, all stays on that."""
    if torch.cuda.device_count() > 1:
        training.model.last.to("cuda:1")
    for batch in batches():
        training.step(batch)


OPTIMIZERS = {one_op_for_all_weights: {"fused": True}}
CASES = {case.__name__: case for case in (straight, one_op_for_all_weights, out_of_memory, forked, another_thread,
                                          a_stream_that_ends, statistics, another_device)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    case = CASES[args.case]
    training = Training(args.device, **OPTIMIZERS.get(case, {"foreach": False}))
    case(training)
    training.end()


if __name__ == "__main__":
    main()
