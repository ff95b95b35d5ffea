#!/usr/bin/env python3
"""Runs an unchanged training script under what people do today when memory is scarce.

    technique.py checkpoint|offload DIR SCRIPT ARGUMENTS...

checkpoint   torch.utils.checkpoint around each repeated block: its inner tensors are computed again
             in the backward pass; exits with 77 where the model has no such block
offload      torch.autograd.graph.saved_tensors_hooks: what the forward pass saves for the backward
             pass is written to files in DIR, and read back when it is asked for
"""

import pathlib
import runpy
import sys
import tempfile

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

# Classes of the repeated parts of tests/workloads' models and torchvision's.
BLOCKS = {"Block", "Layer", "InvertedResidual", "BasicBlock", "Bottleneck", "EncoderBlock"}
SMALLEST = 1 << 20  # bytes: smaller tensors are not worth a file
ABSENT = 77


def plain_sequential(module):
    """Of layers alone: a convolution with what normalizes it."""
    return type(module) is nn.Sequential and not any(list(layer.children()) for layer in module)


def is_block(module):
    return type(module).__name__ in BLOCKS or (
        type(module) is nn.Sequential and len(module) > 1 and all(plain_sequential(part) for part in module))


def checkpoint_blocks():
    """From now on; the result counts the blocks that were run."""
    call, inside, run = nn.Module.__call__, False, [0]

    def wrapped(module, *inputs, **named):
        nonlocal inside
        if inside or not torch.is_grad_enabled() or not is_block(module):
            return call(module, *inputs, **named)
        inside, run[0] = True, run[0] + 1
        try:
            return checkpoint(lambda *given: call(module, *given, **named), *inputs)
        finally:
            inside = False

    nn.Module.__call__ = wrapped
    return run


def offload_to(folder):
    """Hooks that write and read synchronously, each tensor to a file of its own."""
    count = 0

    def pack(tensor):
        nonlocal count
        if tensor.numel() * tensor.element_size() < SMALLEST:
            return tensor
        count += 1
        path = pathlib.Path(folder) / f"{count}.pt"
        torch.save(tensor, path)
        return path

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        tensor = torch.load(packed)
        packed.unlink(missing_ok=True)
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def main():
    technique, directory, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(pathlib.Path(script).parent))
    if technique == "offload":
        with tempfile.TemporaryDirectory(dir=directory, prefix="offload-") as folder, offload_to(folder):
            runpy.run_path(script, run_name="__main__")
        return
    run = checkpoint_blocks()
    runpy.run_path(script, run_name="__main__")
    if run == [0]:
        print("the model has no repeated block to checkpoint", file=sys.stderr)
        sys.exit(ABSENT)


if __name__ == "__main__":
    main()
