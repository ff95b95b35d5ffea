#!/usr/bin/env python3
"""What a budget costs a training that torch.compile has compiled: steady steps of four models, with all of their memory
and within a share of it, compiled both times, beside the bound of the share. In turns; medians over all rounds.

    compiled_budget.py --python PYTHON [--build DIR] [--fast 25%] [--rounds 3] [--steps 16] [--machine FILE]
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "integration" / "scripts" / "compiled.py"
# Larger than in the tests: a quarter of each is more than the smallest budget over an SSD, and than any op.
MODELS = {"cnn": ["--depth", "16"], "mlp": ["--width", "2560", "--batch", "512"],
          "transformer": ["--depth", "6"], "lstm": ["--batch", "512"]}
SETTLED = 8  # steps before: they compile, are profiled, and begin the plan


def train(command, steps):
    """Its median steady step in ms, and what it printed."""
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stderr}")
    took = [float(ms) for ms in re.findall(r"^step \d+: ([\d.]+) ms", ran.stderr, re.M)]
    if len(took) != steps:
        sys.exit(f"{len(took)} of {steps} steps were timed")
    return statistics.median(took[SETTLED:]), ran.stdout


def simulated(args, profile, budget):
    """The bound of a step that moves tensors within that budget, and the simulated step, in ms."""
    ran = subprocess.run([args.build / "bin" / "sentinel", "compare", profile, "--machine", args.machine, "--fast",
                          str(budget), "--policy", "sentinel", "--no-recompute", "--json"], check=True,
                         stdout=subprocess.PIPE, text=True)
    row, = json.loads(ran.stdout)["results"]
    return [f"{row[key] / 1e3:.0f}" if row[key] else "none" for key in ("lower_bound_us", "step_us")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="one that has PyTorch 2")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--fast", default="25%")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--machine", default=pathlib.Path.home() / ".cache" / "sentinel" / "local.toml")
    args = parser.parse_args()
    print("| model | peak MiB | budget MiB | all memory | share | ratio | bound | plan | in, out MiB | faults |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            training = [args.python, SCRIPT, name, *MODELS[name], "--steps", str(args.steps)]
            profile, summary = pathlib.Path(folder) / f"{name}.sentinel", pathlib.Path(folder) / f"{name}.json"
            limited = [args.build / "bin" / "sentinel", "run", "--quiet", "--fast", args.fast, "--summary", summary, "-o",
                       profile, "--", *training]
            took, printed = {"all": [], "share": []}, set()
            for _ in range(args.rounds):
                for kind, command in (("all", training), ("share", limited)):
                    ms, out = train(command, args.steps)
                    took[kind].append(ms)
                    printed.add(out)
            if len(printed) != 1:
                sys.exit(f"{name}: the losses or the weights differ")
            every, share = (statistics.median(took[kind]) for kind in ("all", "share"))
            run = json.loads(summary.read_text())
            late = run["steps"][SETTLED:]
            mean = {key: statistics.mean(row[key] for row in late)
                    for key in ("promoted_bytes", "demoted_bytes", "demand_faults")}
            bound, plan = simulated(args, profile, run["fast_limit_bytes"])
            print(f"| {name} | {run['peak_unlimited_bytes'] / 2**20:.0f} | {run['fast_limit_bytes'] / 2**20:.0f} | "
                  f"{every:.0f} | {share:.0f} | {share / every:.2f} | {bound} | {plan} | "
                  f"{mean['promoted_bytes'] / 2**20:.0f}, {mean['demoted_bytes'] / 2**20:.0f} | "
                  f"{mean['demand_faults']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
