#!/usr/bin/env python3
"""A model larger than memory: ResNet-110 whose live tensors peak at twice the limit of a memory cgroup, which
is a quarter of this machine. Three trainings, of the same steps:

    unlimited   plain PyTorch, without the limit
    plain       plain PyTorch within it: shows that the limit is one
    Sentinel    within it from the first tensor on, without a profile; tells its progress

and the first and the last are compared to the last bit: losses, parameters, optimizer state.

    larger.py [--limit BYTES] [--times 2] [--steps 6]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from contenders import ROOT, WORKLOADS
from live import say, settled, swap

sys.path.insert(0, str(ROOT / "tests" / "integration"))
import cgroup  # noqa: E402

MODEL = [str(WORKLOADS / "resnet_cifar.py"), "--depth", "110"]
SMALL = 64  # the batch from which the large one is reckoned
SPARE = 256 << 20  # of the limit: buffers of the C library, threads' stacks, page tables
GB = 1e9


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4,
                        help="bytes; a quarter of the machine if absent")
    parser.add_argument("--times", type=float, default=2, help="live peak over the limit")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--timeout", type=int, default=3600, help="seconds a training may take")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--disk", type=pathlib.Path, default=pathlib.Path(os.environ.get("SENTINEL_DIR", "/var/tmp")))
    return parser.parse_args()


def bytes_an_image(args, folder):
    """Of the live peak, from a profile of a small batch."""
    profile = folder / "small.sentinel"
    sentinel = args.build / "bin" / "sentinel"
    subprocess.run([sentinel, "record", "--quiet", "-o", profile, "--", sys.executable, *MODEL, "--batch", str(SMALL),
                    "--steps", "5"], check=True, stdout=subprocess.DEVNULL)
    summary = subprocess.run([sentinel, "report", profile, "summary", "--format", "json"], check=True,
                             capture_output=True, text=True)
    return json.loads(summary.stdout)["peak_live_bytes"] / SMALL


def train(args, command, record, limit=None):
    """Exit status and the group's peak; the record is written by the training."""
    with cgroup.MemoryGroup(f"sentinel-larger-{os.getpid()}") as group:
        if limit is not None:
            group.limit(limit)
        done = subprocess.run(group.inside(*command, "--json", record), stdout=subprocess.DEVNULL,
                              timeout=args.timeout)
        return done.returncode, group.peak()


def row(name, outcome):
    print(f"{name:12} {outcome}", flush=True)


def main():
    args = options()
    with tempfile.TemporaryDirectory(prefix="sentinel-larger-") as name:
        folder = pathlib.Path(name)
        say("a small batch is profiled")
        own = swap.own_memory([sys.executable, *MODEL])
        budget = args.limit - own - SPARE
        if budget < SPARE:
            raise SystemExit(f"--limit: {own + 2 * SPARE} bytes or more")
        batch = int(args.times * args.limit / bytes_an_image(args, folder))
        training = [sys.executable, *MODEL, "--batch", str(batch), "--images", str(batch * args.steps),
                    "--steps", str(args.steps)]
        print(f"limit {args.limit / GB:.2f} GB, of which {own / GB:.2f} GB are the process's own; batch {batch}, live "
              f"peak {args.times * args.limit / GB:.2f} GB, --fast {budget}", flush=True)

        unlimited, ours = folder / "unlimited.json", folder / "ours.json"
        status, peak = train(args, training, unlimited)
        if status != 0:
            raise SystemExit(f"without the limit it ends with status {status}: is there memory for {args.times} times "
                             "the limit?")
        times = settled(json.loads(unlimited.read_text()))
        row("unlimited", f"peak {peak / GB:.2f} GB, {statistics.median(times) / 1e3:.1f} s a step")
        status, _ = train(args, training, folder / "plain.json", args.limit)
        if status == 0:
            raise SystemExit("plain PyTorch trains within the limit: it is none")
        row("plain", "killed" if status in (-9, 137) else f"ended with status {status}")
        summary = folder / "summary.json"
        status, peak = train(args, [args.build / "bin" / "sentinel", "run", "--fast", str(budget), "--slow", args.disk,
                              "--summary", summary, "--", *training], ours, args.limit)
        if status != 0:
            raise SystemExit(f"under Sentinel it ends with status {status}")
        steps = json.loads(summary.read_text())["steps"]
        times = [step["ms"] for step in steps if step["phase"] == "steady"]
        row("Sentinel", f"peak {peak / GB:.2f} GB, {statistics.median(times) / 1e3:.1f} s a step under the plan; all: "
            + ", ".join(f"{step['ms'] / 1e3:.0f} s ({step['phase']}, "
                        f"{(step['promoted_bytes'] + step['demoted_bytes']) / GB:.0f} GB)" for step in steps))
        sys.exit(subprocess.run([sys.executable, WORKLOADS / "compare.py", unlimited, ours]).returncode)


if __name__ == "__main__":
    try:
        main()
    except (cgroup.Unavailable, subprocess.SubprocessError) as reason:
        raise SystemExit(str(reason)) from None
