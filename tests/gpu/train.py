#!/usr/bin/env python3
"""Trains one of models.py for some steps and writes a record: losses to the last bit, milliseconds a step, peak of
the device's memory; of each technique that is named, one after the other in this process. Or looks for the largest
batch that trains.

    train.py MODEL [--batch N] [--steps N] [--techniques none,checkpoint,save_on_cpu] [--json FILE]
    train.py MODEL --largest [--limit BYTES] [--most N]
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products

import torch
from torch.utils.checkpoint import checkpoint

import models
import search


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=models.BATCHES)
    parser.add_argument("--batch", type=int, help="samples a step; default: large enough for ten GB and more")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=models.SIZES, default="full")
    parser.add_argument("--techniques", type=lambda text: text.split(","), default=["none"])
    parser.add_argument("--limit", type=int, help="bytes that PyTorch's own allocator may take")
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--most", type=int, default=1 << 20, help="the batch to end the search with")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def prepare(args):
    torch.use_deterministic_algorithms(True, warn_only=True)
    if hasattr(torch.utils, "deterministic"):
        # PyTorch 2 would else write NaN into every new tensor: nothing here reads uninitialized memory, and the
        # fills would slow what it is compared with.
        torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    if args.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.limit / total))


def compute_again(blocks):
    """Each block keeps its input alone and is computed again in the backward pass."""
    for block in blocks:
        forward = block.forward
        block.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)


def train(args, batch, technique="none"):
    """A record of the steps."""
    on_gpu = args.device.startswith("cuda")
    task = models.build(args.model, batch, args.device, args.size)
    if technique == "checkpoint":
        compute_again(task.blocks)
    saved = (torch.autograd.graph.save_on_cpu(pin_memory=on_gpu) if technique == "save_on_cpu"
             else contextlib.nullcontext())
    record = {"technique": technique, "steps": [], "peak_bytes": 0}
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
        record["steps"].append({"loss": value.hex(), "ms": 1e3 * (time.perf_counter() - begin)})
    if on_gpu:
        with contextlib.suppress(RuntimeError):  # an allocator without this figure
            record["peak_bytes"] = torch.cuda.max_memory_allocated()
    return record


def attempt(args, batch, technique="none"):
    """The record, or why there is none: what is out of memory is no error of this program."""
    try:
        return train(args, batch, technique)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        return {"technique": technique, "failure": str(error).splitlines()[0][:200]}


def start_anew(args):
    """What a training has left is no longer there for the next."""
    gc.collect()
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main():
    args = options()
    prepare(args)
    if args.largest:
        def trains(batch):
            good = "failure" not in attempt(args, batch)
            start_anew(args)
            print(search.told(batch, good), file=sys.stderr, flush=True)
            return good
        print(search.largest(trains, args.most))
        return
    records = []
    for technique in args.techniques:
        if records:
            start_anew(args)
        records.append(attempt(args, args.batch or models.BATCHES[args.model], technique))
        if args.json:
            with open(args.json + ".new", "w") as file:  # whoever ends this program finds a whole file
                json.dump(records, file)
            os.replace(args.json + ".new", args.json)
    failures = [record["failure"] for record in records if "failure" in record]
    if len(failures) == len(records):
        raise SystemExit(failures[-1])


if __name__ == "__main__":
    main()
