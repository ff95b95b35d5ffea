#!/usr/bin/env python3
"""What profiling costs, and what managing memory costs when there is enough of it.

Runs a training script several times in each of a few ways, one after the other and then all
again, so that what else the machine does meets all of them alike; prints medians.

  plain            the script alone, the C library's malloc
  plain, kept      the same with memory kept mapped: what a tuned malloc reaches
  arena            Sentinel's allocator with no hooks: nothing is watched, planned or moved
  record, ops      one step is profiled by what its ops name, no page is counted
  record           one step is profiled page by page; the steps after it run in Sentinel's arena,
                   with the op hooks in place and nothing to do in them
  run              the script goes on under a plan, with all the memory it wants

    profiling.py [--build DIR] [--rounds N] [-- SCRIPT ARGUMENTS...]
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORKLOAD = [str(HERE.parent / "workloads" / "resnet_cifar.py"),
            "--depth", "20", "--batch", "64", "--steps", "10"]
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(256 << 20)}
WAYS = {"plain": {}, "plain, kept": KEPT,
        "arena": {"SENTINEL_MODE": "arena"},
        "record, ops": {"SENTINEL_MODE": "record", "SENTINEL_COUNT": "ops"},
        "record": {"SENTINEL_MODE": "record"},
        "run": {"SENTINEL_MODE": "run"}}


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=120, help="seconds a run may take")
    parser.add_argument("--lock", metavar="FILE",
                        help="held during each training, for machines that several measure on")
    parser.add_argument("--only", help="ways to measure, separated by ;")
    parser.add_argument("--json", metavar="FILE", help="write every run here")
    parser.add_argument("workload", nargs="*", default=WORKLOAD,
                        help="a script and its arguments; it must write --json as tests/workloads do")
    return parser.parse_args()


def environment(way, build, folder):
    """The library is loaded as the command line does it, but for the memory limit."""
    home = build / "lib" / "sentinel"
    result = dict(os.environ, **WAYS[way])
    if "SENTINEL_MODE" in WAYS[way]:
        path = [str(home / "inject"), os.environ.get("PYTHONPATH", "")]
        result |= {"PYTHONPATH": os.pathsep.join(filter(None, path)),
                   "SENTINEL_HOME": str(home), "SENTINEL_PYTHON_DIR": str(home / "python"),
                   "SENTINEL_LIBRARY": str(build / "lib" / "libsentinel.so"),
                   "SENTINEL_OUTPUT": str(folder / "profile"),
                   "SENTINEL_SUMMARY": str(folder / "summary.json")}
    return result


@contextlib.contextmanager
def locked(path):
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def peak_by_step(child):
    """Of a running child: the largest resident memory while each step ran, in bytes."""
    return [take_peak(child.pid) for line in child.stdout if line.startswith("step ")]


def take_peak(pid):
    """Since the last call: the kernel lets a peak begin again."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return 0
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) * 1024


def train(way, args, folder):
    """Runs the script to its end; the peak of each step, and the processor seconds."""
    command = [sys.executable, *args.workload, "--json", str(folder / "run.json")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(folder / "stderr", "w+") as complaint:
        child = subprocess.Popen(command, env=environment(way, args.build, folder), text=True,
                                 stdout=subprocess.PIPE, stderr=complaint)
        timer = threading.Timer(args.limit, child.kill)
        timer.start()
        peaks = peak_by_step(child)
        failed = child.wait() != 0
        timer.cancel()
        complaint.seek(0)
        if failed:
            raise SystemExit(f"{way}: the script failed\n{complaint.read()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return peaks, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(way, args):
    """One training: the time and memory of each step."""
    with tempfile.TemporaryDirectory() as name, locked(args.lock):
        folder = pathlib.Path(name)
        peaks, cpu = train(way, args, folder)
        record = json.loads((folder / "run.json").read_text())
        summary = folder / "summary.json"
        phases = [step["phase"] for step in json.loads(summary.read_text())["steps"]] \
            if summary.exists() else []
        return {"ms": [step["ms"] for step in record["steps"]], "peaks": peaks, "phases": phases,
                "cpu_s": cpu, "params": record["params_sha256"]}


def profiled_step(result):
    return result["phases"].index("profile") if "profile" in result["phases"] else None


def normal_steps(result):
    """Those after the warm-up, the profiling and the step that pays for the way back."""
    profiled = profiled_step(result)
    first = (profiled if profiled is not None else 3) + 2
    return range(first, len(result["ms"]))


def figures(results):
    """Medians over the runs of one way; times in ms, memory in bytes."""
    table = {"step": statistics.median(
                 statistics.median(r["ms"][i] for i in normal_steps(r)) for r in results),
             "memory": statistics.median(
                 max(r["peaks"][i] for i in normal_steps(r) if i < len(r["peaks"])) for r in results)}
    profiled = [(r, profiled_step(r)) for r in results if profiled_step(r) is not None]
    if profiled:
        table["profiling step"] = statistics.median(r["ms"][i] for r, i in profiled)
        table["profiling memory"] = statistics.median(r["peaks"][i] for r, i in profiled)
    return table


def show(collected):
    base = figures(collected["plain, kept"]) if "plain, kept" in collected else None
    print(f"{'':14} {'step ms':>9} {'to kept':>8} {'profiling':>10} {'to step':>8} "
          f"{'MB':>7} {'MB then':>8} {'to step':>8}")
    for way, results in collected.items():
        row = figures(results)
        ratio = f"{row['step'] / base['step']:8.2f}" if base else " " * 8
        line = f"{way:14} {row['step']:9.1f} {ratio}"
        if "profiling step" in row:
            line += f" {row['profiling step']:10.1f} {row['profiling step'] / row['step']:8.2f}"
        else:
            line += " " * 20
        line += f" {row['memory'] / 1e6:7.0f}"
        if "profiling memory" in row:
            line += f" {row['profiling memory'] / 1e6:8.0f} {row['profiling memory'] / row['memory']:8.2f}"
        print(line)
    hashes = {r["params"] for results in collected.values() for r in results}
    print("\nparameters after training:", "the same in all runs" if len(hashes) == 1
          else "NOT the same in all runs")


def main():
    args = options()
    if not (args.build / "lib" / "libsentinel.so").exists():
        raise SystemExit(f"{args.build} has no lib/libsentinel.so: build first, or give --build")
    ways = args.only.split(";") if args.only else list(WAYS)
    collected = {way: [] for way in ways}
    for number in range(args.rounds):
        for way in ways:
            collected[way].append(run(way, args))
            if sys.stderr.isatty():
                print(f"round {number + 1} of {args.rounds}: {way}", file=sys.stderr)
    show(collected)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(collected, indent=1) + "\n")


if __name__ == "__main__":
    main()
