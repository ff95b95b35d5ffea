#!/usr/bin/env python3
"""Trains one of models.py for some steps and writes a record: losses to the last bit, milliseconds a step, peak of
the device's memory. What Sentinel is compared with is a flag.

    train.py MODEL [--batch N] [--steps N] [--technique save_on_cpu|checkpoint] [--limit BYTES] [--json FILE]
"""
import argparse
import contextlib
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products

import torch
from torch.utils.checkpoint import checkpoint

import models


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=models.BATCHES)
    parser.add_argument("--batch", type=int, help="samples a step; default: large enough for several tens of GB")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model, to test this script")
    parser.add_argument("--technique", choices=("none", "save_on_cpu", "checkpoint"), default="none")
    parser.add_argument("--limit", type=int, help="bytes that PyTorch's own allocator may take")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def compute_again(blocks):
    """Each block keeps its input alone and is computed again in the backward pass."""
    for block in blocks:
        forward = block.forward
        block.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)


def main():
    args = options()
    on_gpu = args.device.startswith("cuda")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    if args.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.limit / total))
    task = models.build(args.model, args.batch or models.BATCHES[args.model], args.device, args.tiny)
    if args.technique == "checkpoint":
        compute_again(task.blocks)
    saved = (torch.autograd.graph.save_on_cpu(pin_memory=on_gpu) if args.technique == "save_on_cpu"
             else contextlib.nullcontext())
    record = {"model": args.model, "steps": []}
    for number in range(args.steps):
        begin = time.perf_counter()
        with saved:
            loss = task.loss(number)
        loss.backward()
        task.optimizer.step()
        task.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if on_gpu:
            torch.cuda.synchronize()
        ms = 1e3 * (time.perf_counter() - begin)
        record["steps"].append({"loss": value.hex(), "ms": ms})
        print(f"step {number:4}  loss {value:.6f}  {ms:8.1f} ms", flush=True)
    with contextlib.suppress(RuntimeError):  # an allocator without this figure
        record["peak_bytes"] = torch.cuda.max_memory_allocated() if on_gpu else 0
    if args.json:
        with open(args.json, "w") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()
