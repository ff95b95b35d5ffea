#!/usr/bin/env python3
"""What an op costs the host under Sentinel on a GPU, beside plain PyTorch, without a GPU: the processor's PyTorch takes
its part in the memory of the tests' driver's library (tests/integration/gpu/test_torch_gpu.py). Small ops, so that the
kernel is nothing: one that updates in place, one that makes a tensor, one with eight operands. A process is plain, under
Sentinel while nothing is away, or in a budget in which ops are told; all in turns, medians of all rounds.

    gpu_ops.py [--build DIR] [--python PYTHON] [--rounds 5] [--calls 20000]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "integration" / "gpu"), str(ROOT / "tests" / "integration")]
KINDS = {"plain": None, "nothing away": "400M", "told": "30%"}


def measure(calls):
    """In a process of its own, after some steps of training."""
    sys.path.insert(0, str(ROOT / "tests" / "integration" / "scripts"))
    import torch

    import gpu_training
    core = gpu_training.attach() if "ADAPTOR" in os.environ else None
    torch.set_num_threads(1)
    gpu_training.train(8, torch.Tensor.backward, None, None, gpu_training.WIDTH,
                       gpu_training.BATCH, "sgd")
    a, b = torch.ones(16), torch.ones(16)
    parts = [torch.ones(2) for _ in range(8)]
    ops = {"in place": lambda: a.add_(b), "makes a tensor": lambda: a + b, "eight operands": lambda: torch.cat(parts)}

    def microseconds(op):
        for _ in range(calls // 10):
            op()
        begin = time.perf_counter()
        for _ in range(calls):
            op()
        return (time.perf_counter() - begin) / calls * 1e6

    told = {name: microseconds(op) for name, op in ops.items()}
    if core:
        told["wanted"] = core.sentinel_wants_ops()
    print(json.dumps(told))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        return measure(args.calls)
    from test_torch_gpu import device_of
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        device = device_of(args.python, args.build.resolve(), pathlib.Path(folder))
        for _ in range(args.rounds):
            for kind, fast in KINDS.items():
                place = dict(device, SENTINEL_FAST=fast, SENTINEL_QUIET="1") if fast else {}
                ran = subprocess.run([args.python, __file__, "--measure", "--calls", str(args.calls)], check=True,
                                     env={**os.environ, "OMP_NUM_THREADS": "1", **place}, stdout=subprocess.PIPE,
                                     text=True)
                row = json.loads(ran.stdout.splitlines()[-1])
                if row.pop("wanted", kind == "told") != (kind == "told"):
                    sys.exit(f"{kind}: ops were told where they should not be, or the other way round")
                for op, us in row.items():
                    took.setdefault(op, {}).setdefault(kind, []).append(us)
    print("| us an op | " + " | ".join(KINDS) + " | nothing away, above plain |")
    print("| --- |" + " --- |" * (len(KINDS) + 1))
    for op, kinds in took.items():
        medians = {kind: statistics.median(values) for kind, values in kinds.items()}
        print(f"| {op} | " + " | ".join(f"{us:.2f}" for us in medians.values())
              + f" | {medians['nothing away'] - medians['plain']:+.2f} |")


if __name__ == "__main__":
    main()
