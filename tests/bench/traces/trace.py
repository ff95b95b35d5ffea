#!/usr/bin/env python3
"""The tables of docs/results/trace.md: models of today on the built-in machines, from traces that `sentinel trace` makes
without a machine's memory.

    trace.py [--part models|g10|home|all] [--python PYTHON] [--build DIR] [--time-limit SECONDS]

The Python needs PyTorch 2.1 or later and transformers (tests/bench/README.md). It prints Markdown.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MACHINES = ["a100-g10", "v100-16gb", "rtx2080ti", "optane"]  # a100-g10-paper has a100-g10's processor and memory
BATCHES = {"gpt2-xl": 4, "llama-7b": 1, "vit-h": 64, "resnet-152": 256, "whisper-large": 8}
G10 = {"bert-base": [64, 128, 256, 512], "vit-b": [256, 512, 1024], "resnet-152": [256, 512, 1024, 1280]}
G10_POLICIES = ["lru", "flashneuron", "deepum", "g10", "auto"]
# HOME's Table 2: the largest batches of PyTorch, Capuchin and HOME in the 11 GB of an RTX 2080 Ti.
HOME = {"mobilenet": (2012, 3954, 4200), "plain-20": (1040, 2843, 2926), "vgg16": (2759, 4250, 5125),
        "resnet-20": (1255, 2014, 2576)}
GIB = 1 << 30


class Bench:
    def __init__(self, args):
        self.args = args
        self.command = args.build / "bin" / "sentinel"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sentinel-trace-"))

    def chosen(self, table):
        only = self.args.only.split(",")
        return [(model, value) for model, value in table.items() if model in only or only == [""]]

    def trace(self, model, batch, machine, *flags):
        """Its file, and the seconds and bytes that tracing took."""
        file = self.folder / f"{model}-{batch}-{machine}.sentinel"
        start = time.time()
        process = subprocess.Popen(
            [self.command, "trace", "-o", file, "--machine", machine, "--", self.args.python,
             HERE / "traced_models.py", model, "--batch", str(batch), *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{model}, batch {batch}: {said}")
        return file, time.time() - start, usage.ru_maxrss << 10

    def simulate(self, file, machine, policies, *flags):
        done = subprocess.run([self.command, "simulate", file, "--machine", machine, "--policy", ",".join(policies),
                               "--time-limit", str(self.args.time_limit), "--json", *flags],
                              capture_output=True, text=True)
        if done.returncode not in (0, 1) or not done.stdout:
            raise SystemExit(f"{file}: {done.stderr}")
        return json.loads(done.stdout)["results"]

    def peak(self, file):
        report = subprocess.run([self.command, "report", file, "summary", "--format", "json"], capture_output=True,
                                text=True, check=True)
        return json.loads(report.stdout)["peak_live_bytes"]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def gib(size):
    return f"{size / GIB:.3g}"


def models(bench):
    head("model", "batch", "traced in s", "RSS GiB", "peak GiB", "machine", "steps/s, all fits", "steps/s, its memory",
         "95 % from GiB", "80 % from GiB")
    for model, batch in bench.chosen(BATCHES):
        for machine in MACHINES:
            file, seconds, rss = bench.trace(model, batch, machine)
            own = bench.simulate(file, machine, ["auto"])[0]
            budgets = [bench.simulate(file, machine, [bench.args.policy], "--target", str(share))[0]
                       for share in (0.95, 0.8)]
            row(model, batch, f"{seconds:.1f}", gib(rss), gib(bench.peak(file)), machine,
                f"{1e6 / own['ideal_us']:.3g}" if own["feasible"] else "",
                f"{1e6 / own['step_us']:.3g}" if own["feasible"] else "does not fit",
                *(gib(each["fast_bytes"]) if each["feasible"] else "none" for each in budgets))


def g10(bench):
    head("model", "batch", "peak of 40 GiB", *G10_POLICIES)
    for model, batches in bench.chosen(G10):
        for batch in batches:
            file, _, _ = bench.trace(model, batch, "a100-g10", "--optimizer", "sgd")
            results = bench.simulate(file, "a100-g10", G10_POLICIES)
            row(model, batch, f"{bench.peak(file) / (40 * GIB):.0%}",
                *(f"{each['normalized_throughput']:.2f}" if each["feasible"] else "-" for each in results))


def largest(works, first):
    """The largest batch that works, to a hundredth; 0 where the first does not."""
    good, bad = 0, first
    while works(bad):
        good, bad = bad, 2 * bad
    while bad - good > max(1, good // 100):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if works(middle) else (good, middle)
    return good


def home(bench):
    head("model", "PyTorch, paper", "all fits, trace", "Capuchin, paper", "Capuchin, trace", "HOME, paper", "HOME, trace")
    for model, (plain, capuchin, paper) in bench.chosen(HOME):
        def works(batch, policy, model=model):
            file, _, _ = bench.trace(model, batch, "rtx2080ti", "--optimizer", "sgd")
            result = bench.simulate(file, "rtx2080ti", [policy])[0]
            file.unlink()
            return result["feasible"] and result["normalized_throughput"] > 0.5

        few, more = (bench.peak(bench.trace(model, batch, "rtx2080ti", "--optimizer", "sgd")[0]) for batch in (256, 512))
        fits = 256 + int(256 * (11 * GIB - few) / (more - few))  # sizes grow with the batch, or not at all
        row(model, plain, fits, capuchin, largest(lambda batch: works(batch, "capuchin"), 512), paper,
            largest(lambda batch: works(batch, "home"), 512))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("models", "g10", "home", "all"), default="all")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[2] / "build")
    parser.add_argument("--only", default="", help="models, by commas")
    parser.add_argument("--policy", default="sentinel", help="of the smallest budgets")
    parser.add_argument("--time-limit", default=10, help="seconds that a policy may plan, each time")
    bench = Bench(parser.parse_args())
    for part in (models, g10, home):
        if bench.args.part in (part.__name__, "all"):
            part(bench)
            print()


if __name__ == "__main__":
    main()
