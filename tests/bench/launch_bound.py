#!/usr/bin/env python3
"""What observing costs a training that does little but launch: some two thousand ops of microseconds a step, in modules
of their own. A process is plain, under Sentinel with nothing that can leave (ops are not told), so with ops told all the
same, or within its own peak (a few blocks move); all in turns, medians of steady steps over all rounds.

    launch_bound.py [--build DIR] [--python PYTHON] [--rounds 5] [--steps 300]
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS, WIDTH, SETTLED = 160, 4096, 150  # a plan is made beside the first steps; then a step is settled


def tell_always():
    """Has ops told although nothing needs it, as before a process group is made."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {line.split()[-1] for line in maps if line.rstrip().endswith(".so")}
    for library in map(ctypes.CDLL, loaded):
        if hasattr(library, "sentinel_torch_tell_always"):
            return library.sentinel_torch_tell_always()
    sys.exit("no adaptor is loaded")


def train(steps):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.shift = (torch.nn.Parameter(torch.randn(WIDTH) / 8) for _ in range(2))

        def forward(self, x):
            return torch.tanh(x * self.scale + self.shift) + x

    model = torch.nn.Sequential(*(Block() for _ in range(BLOCKS)))
    # Held for the whole step, so that a step's peak is far above the smallest budget.
    ballast = torch.zeros(64 << 20, dtype=torch.uint8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, foreach=False)
    data = torch.randn(WIDTH)
    if os.environ.get("LAUNCH_BOUND_TELL"):
        tell_always()
    took, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(data).square().mean() + ballast[0]
        loss.backward()
        optimizer.step()
        took.append((time.perf_counter() - begin) * 1e3)
        losses.append(float(loss.detach()).hex())
    if os.environ.get("LAUNCH_BOUND_OPS"):
        with torch.autograd.profiler.profile() as profiler:
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        ops = sum(event.key.startswith("aten::") * event.count for event in profiler.key_averages())
        return print(json.dumps({"ops": ops}))
    print(json.dumps({"ms": statistics.median(took[SETTLED:]), "loss": losses[-1]}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        return train(args.steps)
    training = [args.python, __file__, "--train", "--steps", str(args.steps)]

    def told(command, **more):
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1", **more})
        return json.loads(ran.stdout.splitlines()[-1])

    sentinel = [args.build / "bin" / "sentinel", "run", "--quiet"]
    kinds = {"plain": [], "ops not told": [*sentinel, "--"],
             "ops told, nothing moves": ["env", "LAUNCH_BOUND_TELL=1", *sentinel, "--"],
             "ops told, a few blocks move": [*sentinel, "--fast", "100%", "--"]}
    ops = told([*training], LAUNCH_BOUND_OPS="1")["ops"]
    took, losses = {kind: [] for kind in kinds}, set()
    for _ in range(args.rounds):
        for kind, before in kinds.items():
            row = told([*before, *training])
            took[kind].append(row["ms"])
            losses.add(row["loss"])
    if len(losses) != 1:
        sys.exit(f"losses differ: {losses}")
    medians = {kind: statistics.median(values) for kind, values in took.items()}
    print(f"{ops} ops a step, {args.rounds} rounds of {args.steps} steps")
    print("| | ms a step | to plain | us an op above plain |")
    print("| --- | --- | --- | --- |")
    for kind, ms in medians.items():
        above = (ms - medians["plain"]) * 1e3 / ops
        print(f"| {kind} | {ms:.2f} | {ms / medians['plain']:.3f} | {above:+.2f} |")


if __name__ == "__main__":
    main()
