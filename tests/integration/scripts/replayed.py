#!/usr/bin/env python3
"""Trains a small model in ways in which a replay of an op could go wrong, and prints what it comes to: each loss, and
all parameters and optimizer states. `replayed.py list` names the ways; some together are written with "+".

    replayed.py WAYS [--steps N] [--rows N]
"""
import argparse
import ctypes
import hashlib
import os
import sys
import threading
from typing import List

import numpy
import torch

WIDTH, DEPTH = 256, 6


class Block(torch.nn.Module):
    """A linear layer, an activation and a normalisation, as the way has them."""

    def __init__(self, ways):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        normal = torch.nn.BatchNorm1d if ways & {"batch-norm", "batch-norm-eval", "eval-then-train"} else torch.nn.LayerNorm
        layers = [torch.nn.GELU(), normal(WIDTH)]
        if "in-place" in ways:
            layers.append(torch.nn.ReLU(inplace=True))
        if "relu6" in ways:  # its gradient needs what was there before: autograd saves a copy
            layers.append(torch.nn.ReLU6(inplace=True))
        if "rrelu" in ways:
            layers.append(torch.nn.RReLU())
        if "dropout" in ways:
            layers.append(torch.nn.Dropout(0.1))
        self.layers = torch.nn.Sequential(*layers)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))
        self.register_buffer("shift", torch.zeros(WIDTH))
        self.ways = ways

    def forward(self, rows):
        if "views" in self.ways:
            rows = rows.view(2, -1, WIDTH).transpose(0, 1).reshape(-1, WIDTH)
        made = self.linear(rows)
        if self.ways & {"fork", "workers"}:
            self.kept = made.detach()
        if "views" in self.ways:
            made[:, : WIDTH // 2].mul_(0.5)
            made = torch.cat([made[:, 7:], made[:, :7]], 1)
        if "random-like" in self.ways:
            made = made + torch.rand_like(made) * 0.01 + torch.randn(WIDTH) * 0.01
        if "statistics" in self.ways:  # by hand: what updates the running ones says it only reads them
            with torch.no_grad():
                torch.batch_norm_update_stats(made, self.mean, self.variance, 0.1)
            made = made - self.mean
        if "scripted" in self.ways:
            made = halves(made)
        if self.ways & {"transformed", "subclass", "operator"}:
            made = made + self.shift
        return rows + self.layers(made)


@torch.jit.script
def halves(rows):
    """Its list of numbers goes on to change after the op."""
    shape: List[int] = [rows.size(0) * 2, rows.size(1) // 2]
    split = torch.nn.functional.gelu(rows.reshape(shape)).reshape(shape)
    shape.append(1)
    shape[0] = 1
    return split.reshape(rows.shape)


class Wrapped(torch.Tensor):
    """A subclass whose operations are those of the tensor in it."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(each.tensor if isinstance(each, cls) else each for each in args), **(kwargs or {}))


def shift_within_an_op(ways, model):
    """Each block's shift, by an update that lies within an op whose operands do not show it."""
    with torch.no_grad():
        for block in model.blocks:
            if "transformed" in ways:
                torch.func.vmap(lambda each: each.add_(0.25))(block.shift)
            if "subclass" in ways:
                Wrapped(block.shift).add_(0.25)
            if "operator" in ways:
                shift_by_operator(ways, block)


def shift_by_operator(ways, block):
    shifted.append(block.shift)
    torch.ops.replayed.shift(torch.zeros(1))
    shifted.clear()


shifted = []  # what the operator reaches without being given it
if hasattr(torch.library, "custom_op"):
    @torch.library.custom_op("replayed::shift", mutates_args=())
    def shift(by: torch.Tensor) -> torch.Tensor:
        for each in shifted:
            each.add_(0.25)
        return by + 1


class Model(torch.nn.Module):
    def __init__(self, ways):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(ways) for _ in range(DEPTH))
        if "tied" in ways:
            for block in self.blocks[1:]:
                block.linear.weight = self.blocks[0].linear.weight
        self.ways = ways

    def forward(self, rows):
        for block in self.blocks:
            if self.ways & {"checkpoint", "checkpoint-reentrant"}:
                from torch.utils.checkpoint import checkpoint
                rows = checkpoint(block, rows, use_reentrant="checkpoint-reentrant" in self.ways)
            else:
                rows = block(rows)
        return rows


def hooks(ways):
    """Saved-tensor hooks of the program's own: what is saved goes through another type and back."""
    if "saved-tensor-hooks" not in ways:
        return torch.enable_grad()
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.double().clone(),
                                                    lambda packed: packed.float())


def autocast(ways):
    return torch.autocast("cpu", torch.bfloat16, enabled="autocast" in ways)


def prepare(ways, step, model, rows):
    if "requires-grad" in ways:
        model.blocks[1].requires_grad_(step % 4 < 2)
    if "batch-norm-eval" in ways:
        model.train(step % 2 == 0)
    if "numpy" in ways:
        rows.numpy()[step] += 1
    if "address" in ways:
        ctypes.memset(rows.data_ptr() + 4 * step, 0, 64)
    if "threads" in ways:
        torch.set_num_threads(1 + step % 2)


def fork(model):
    """Its child has all that the step has made."""
    child = os.fork()
    if child == 0:
        os._exit(0 if all(bool(block.kept.isfinite().all() and block.kept.any()) for block in model.blocks) else 1)
    assert os.waitpid(child, 0)[1] == 0


def load(model):
    """Workers are forked while a plan has given tensors up."""
    data = torch.utils.data.TensorDataset(*(block.kept[:64] for block in model.blocks))
    for batch in torch.utils.data.DataLoader(data, batch_size=32, num_workers=1):
        print(*(float(part.sum()).hex() for part in batch))


def is_away(address, size):
    """By the process's page table."""
    page = os.sysconf("SC_PAGESIZE")
    first, end = address // page, -(-(address + size) // page)
    with open("/proc/self/pagemap", "rb", buffering=0) as table:
        table.seek(8 * first)
        entries = numpy.frombuffer(table.read(8 * (end - first)), numpy.uint64)
    return not (entries >> numpy.uint64(63)).all()


def touch(addresses, library):
    """Reads what lies there as no op does, each address in another way: with Python's lock held, in a team of threads, and
    in an op that holds the generator's lock and is given the memory under an address that is no tensor's."""
    for at, (address, count) in enumerate(addresses):
        way = ("bytes", "team", "random")[at % 3]
        if is_away(address, 4 * count):
            print(f"away: {way}", file=sys.stderr)
        if way == "bytes":
            print(hashlib.sha256(ctypes.string_at(address, 4 * count)).hexdigest()[:16])
        elif way == "team":
            print(library.touch(ctypes.c_void_p(address), count).hex())
        else:
            within = numpy.ctypeslib.as_array((ctypes.c_float * (count - 16)).from_address(address + 64))
            print(float(torch.rrelu(torch.from_numpy(within), training=True).sum()).hex())


def between(ways, step, model, made):
    """Between the forward and the backward pass."""
    if "fork" in ways and step % 2:
        fork(model)
    if "workers" in ways and step % 3 == 2:
        load(model)
    if "numpy" in ways:
        array = made.detach().numpy()
        array[:7] *= 0.5
    if "dlpack" in ways:
        other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(made.detach()))
        other[:7] *= 0.5
    if "precision" in ways and hasattr(torch, "set_float32_matmul_precision"):
        torch.set_float32_matmul_precision("medium")
    if "backend" in ways and hasattr(type(torch.backends.mkldnn), "enabled"):
        torch.backends.mkldnn.enabled = False
    if ways & {"transformed", "subclass", "operator"}:
        shift_within_an_op(ways, model)


def after(ways):
    if "precision" in ways:
        torch.set_float32_matmul_precision("highest")
    if "backend" in ways and hasattr(type(torch.backends.mkldnn), "enabled"):
        torch.backends.mkldnn.enabled = True


def loaded(ways, rows):
    """Batches: as they are, or of a loader whose workers are forked in mid-training."""
    if "workers" not in ways:
        while True:
            yield rows
    while True:
        data = torch.utils.data.TensorDataset(rows[:64])
        for batch, in torch.utils.data.DataLoader(data, batch_size=32, num_workers=1):
            yield rows + batch.sum()


def train(ways, steps, count, touched):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Model(ways)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3) if "adam" in ways else \
        torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    rows = torch.randn(count, WIDTH, requires_grad="checkpoint-reentrant" in ways)
    addresses = []

    def note(module, inputs, made):
        storage = made.untyped_storage() if hasattr(made, "untyped_storage") else made.storage()._storage
        addresses.append((torch._C.StorageBase.data_ptr(storage), made.numel()))  # as an extension in C++ has it

    for module in model.modules() if touched else []:
        if isinstance(module, (torch.nn.Linear, torch.nn.GELU)):
            module.register_forward_hook(note)
    batches = loaded(ways, rows)
    for step in range(steps):
        batch = next(batches)
        prepare(ways, step, model, rows)
        optimizer.zero_grad()
        for part in batch.chunk(2) if "accumulation" in ways else [batch]:
            with hooks(ways), autocast(ways):
                addresses.clear()
                if "eval-then-train" in ways:  # in one step: the statistics change between both
                    model.eval()
                    first = model(part)
                    model.train()
                    made = model(part + 0.1) - first
                else:
                    made = model(part)
                if "beside" in ways:  # another thread's op, in the middle of the step
                    other = threading.Thread(target=lambda: model.blocks[0].mean.add_(1))
                    other.start(), other.join()
                if "stored" in ways:
                    storage = part.untyped_storage() if hasattr(part, "untyped_storage") else part.storage()
                    ctypes.memset(storage.data_ptr() + 4 * step, 0, 64)
                if touched:
                    touch(addresses, touched)
                loss = made.float().square().mean()
            between(ways, step, model, made)
            loss.backward(retain_graph="two-passes" in ways)
            if "two-passes" in ways:
                loss.backward()
        after(ways)
        optimizer.step()
        print(step, float(loss.detach()).hex(), flush=True)
    summed = hashlib.sha256()
    for tensor in [*model.parameters(), *model.buffers(), *(state for each in optimizer.state.values()
                                                            for state in each.values()
                                                            if isinstance(state, torch.Tensor))]:
        summed.update(tensor.detach().double().numpy().tobytes())
    print(summed.hexdigest(), float(torch.rand(1)).hex())


WAYS = ["plain", "adam", "batch-norm", "batch-norm-eval", "dropout", "rrelu", "random-like", "in-place", "relu6", "tied", "views",
        "accumulation", "checkpoint", "checkpoint-reentrant", "saved-tensor-hooks", "two-passes", "autocast", "numpy",
        "dlpack", "address", "requires-grad", "threads", "precision", "backend", "fork", "workers",
        "statistics", "scripted", "eval-then-train", "beside", "stored", "transformed", "subclass", "operator"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--touch", metavar="LIBRARY", help="its touch(address, count) reads floats in many threads")
    args = parser.parse_args()
    ways = set(args.ways.split("+"))
    if args.ways == "list":
        print(*WAYS, sep="\n")
    elif ways <= set(WAYS):
        library = ctypes.PyDLL(args.touch) if args.touch else None  # Python's lock stays held
        if library:
            library.touch.restype = ctypes.c_float
        train(ways, args.steps, args.rows, library)
    else:
        parser.error(f"not known: {', '.join(ways - set(WAYS))}")


if __name__ == "__main__":
    main()
