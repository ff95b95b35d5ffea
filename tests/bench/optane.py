#!/usr/bin/env python3
"""The Sentinel paper's evaluation on a machine with Optane memory, simulated from profiles of the
five workloads: its Figures 7, 9 and 10 and Table IV (HPCA 2021, section VII-B).

Records each workload once (`sentinel record`, pages counted with the window of the paper's
last-level cache), takes the processor time of a plain step, and simulates on `optane`:

  1. 20 % fast memory: sentinel against the other policies, beside the paper's averages
  2. bytes that move in a step, beside the paper's Table IV
  3. 20 to 60 % fast memory
  4. bandwidth of each tier over the step
  5. sentinel without one of its features

    optane.py [--build DIR] [--profiles DIR] [--only NAME,...] [--cores N] [--lock FILE]

Profiles that lie in DIR already are used as they are. Op times are those of the profile, scaled so
that they sum up to the processor time of a plain step: a machine that does other things too
stretches a step, not its processor time. --cores N divides that time by N, as N processors that
share the work perfectly would; the platform of the paper has 24, the profiles are of one thread.
"""

import argparse
import contextlib
import fcntl
import json
import math
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORKLOADS = {  # small sizes of the models of the paper's Table III
    "ResNet": ["resnet_cifar.py", "--depth", "32", "--batch", "128"],
    "BERT": ["bert_mlm.py", "--layers", "4", "--hidden", "512", "--heads", "8", "--batch", "16"],
    "LSTM": ["lstm_lm.py", "--hidden", "650", "--batch", "20"],
    "DCGAN": ["dcgan.py", "--batch", "32", "--width", "32"],
    "MobileNet": ["mobilenet.py", "--batch", "64"],
}
POLICIES = ["sentinel", "autotm", "ial", "memory-mode", "first-touch", "slow-only"]
# What the paper says of sentinel's throughput over theirs, on average.
PAPER_GAIN = {"autotm": 17, "ial": 37, "memory-mode": 23, "first-touch": 70}
PAPER_MOVED = {"ResNet": (3.1, 5.1, 8), "BERT": (2.8, 2.3, 4), "DCGAN": (0.8, 0.7, 1.2),
               "LSTM": (0.7, 1.2, 1.2), "MobileNet": (0.55, 0.8, 0.95)}
PAPER_PEAK = {"ResNet": 14.1, "BERT": 35.39, "LSTM": 11.12, "DCGAN": 15.68, "MobileNet": 14.15}
WINDOW = 36608 // 4  # pages in the last-level cache of the paper's Table II
STEPS = 5
FAST = ["20", "30", "40", "50", "60"]


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--profiles", type=pathlib.Path, default=pathlib.Path("optane-profiles"))
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--cores", type=float, default=1)
    parser.add_argument("--lock", metavar="FILE", help="held during each training")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    return parser.parse_args()


@contextlib.contextmanager
def locked(path):
    if not path:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def script(args, name):
    file, *rest = WORKLOADS[name]
    return [args.python, str(HERE.parent / "workloads" / file), *rest, "--threads", "1"]


# Runs a workload with its clock replaced by that of the processor.
MEASURE = """
import runpy, sys, time
time.perf_counter = time.process_time
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def processor_us(args, name):
    """Of one step without Sentinel, the last of a few."""
    command = script(args, name)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([command[0], "-c", MEASURE, str(HERE.parent / "workloads"), *command[1:],
                        "--steps", "2", "--json", out.name], check=True, capture_output=True)
        return json.loads(pathlib.Path(out.name).read_text())["steps"][-1]["ms"] * 1e3


def record(args, name):
    """The profile of a workload and the microseconds of a plain step; made if they are not there."""
    profile, step = args.profiles / f"{name}.sentinel", args.profiles / f"{name}.json"
    args.profiles.mkdir(parents=True, exist_ok=True)
    if not profile.exists():
        with locked(args.lock):
            subprocess.run([args.build / "bin" / "sentinel", "record", "--quiet", "--window",
                            str(WINDOW), "-o", profile, "--", *script(args, name), "--steps",
                            str(STEPS)], check=True, stdout=subprocess.DEVNULL)
    if not step.exists():
        with locked(args.lock):
            step.write_text(json.dumps({"step_us": processor_us(args, name)}))
    return profile, json.loads(step.read_text())["step_us"]


def simulate(args, name, fast, policies, *more):
    profile, step_us = record(args, name)
    run = subprocess.run([args.build / "bin" / "optane_bench", profile, "--machine", "optane",
                          "--fast", ",".join(fast), "--policies", ",".join(policies),
                          "--step-us", str(step_us / args.cores), *more],
                         check=True, capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def mean(values):
    """Of ratios: geometric."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else float("nan")


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def throughputs(results, policies):
    """Share of the throughput with fast memory alone, per policy and workload."""
    shares = {p: {} for p in policies}
    for name, lines in results.items():
        for line in lines:
            if "step_us" in line:
                shares[line["policy"]][name] = line["ideal_us"] / line["step_us"]
    return shares


def overall(args, names):
    policies = args.policies.split(",")
    results = {n: simulate(args, n, ["20"], policies) for n in names}
    shares = throughputs(results, policies)
    print("Share of the throughput of fast memory alone, 20 % of the peak as fast memory:\n")
    rows = []
    for policy in policies:
        row = [policy, *(f"{shares[policy][n]:.3f}" if n in shares[policy] else "–" for n in names)]
        row.append(f"{mean(list(shares[policy].values())):.3f}")
        gains = [shares["sentinel"][n] / shares[policy][n] for n in names if n in shares[policy]]
        row.append("" if policy == "sentinel" else f"{100 * (mean(gains) - 1):+.0f} %")
        row.append("0.91" if policy == "sentinel" else
                   f"+{PAPER_GAIN[policy]} %" if policy in PAPER_GAIN else "")
        rows.append(row)
    table(["policy", *names, "mean", "sentinel over it", "paper"], rows)
    for name, lines in results.items():
        for line in lines:
            if "reason" in line:
                print(f"{name}, {line['policy']}: {line['reason']}\n")
    return results


def moved(results, names):
    print("Bytes that move in a step as a share of the peak (the paper's Table IV over its "
          "Table III in brackets):\n")
    rows = []
    for i, policy in enumerate(["ial", "autotm", "sentinel"]):
        row = [policy]
        for name in names:
            line = next(l for l in results[name] if l["policy"] == policy)
            peak = line["fast_bytes"] / line["fast_percent"] * 100
            paper = PAPER_MOVED[name][i] / PAPER_PEAK[name]
            row.append(f"{line['moved_bytes'] / peak:.2f} ({paper:.2f})" if "moved_bytes" in line
                       else "–")
        rows.append(row)
    table(["policy", *names], rows)


def sensitivity(args, names):
    print("sentinel with more fast memory, share of the throughput of fast memory alone (paper: at "
          "most 17 % apart from 20 to 40 %, nothing lost at 60 %):\n")
    results = {n: simulate(args, n, FAST, ["sentinel"]) for n in names}
    rows = [[f"{f} %", *(f"{l['ideal_us'] / l['step_us']:.3f}" if "step_us" in l else "–"
                         for l in (next(l for l in results[n] if l["fast_percent"] == float(f))
                                   for n in names))] for f in FAST]
    table(["fast memory", *names], rows)


def bandwidth(args, names):
    print("Bandwidth over ten parts of the step, GB/s: what ops touch in fast memory, in slow "
          "memory, and what moves (the paper's Figure 9):\n")
    rows = []
    for name in names[:1]:
        for line in simulate(args, name, ["20"], ["sentinel", "ial"], "--bins", "10"):
            for tier, values in line.get("gb_per_s", {}).items():
                rows.append([f"{name}, {line['policy']}", tier, *(f"{v:.2f}" for v in values)])
    table(["", "", *(str(i) for i in range(1, 11))], rows)


def features(args, names):
    print("sentinel without one of its features, 20 %: step time over the full one's:\n")
    full = {n: simulate(args, n, ["20"], ["sentinel"])[0] for n in names}
    rows = []
    for feature in ["reserved-space", "interval-choice", "co-location", "interval-trial"]:
        row = [feature]
        for name in names:
            line = simulate(args, name, ["20"], ["sentinel"], "--without", feature)[0]
            row.append(f"{line['step_us'] / full[name]['step_us']:.3f}"
                       if "step_us" in line and "step_us" in full[name] else "–")
        rows.append(row)
    table(["without", *names], rows)


def main():
    args = options()
    names = args.only.split(",")
    unknown = set(names) - set(WORKLOADS)
    if unknown:
        sys.exit(f"optane.py: there is no workload {', '.join(unknown)}")
    for name in names:
        _, step_us = record(args, name)
        print(f"{name}: {' '.join(WORKLOADS[name])}, {step_us / 1e3 / args.cores:.0f} ms a step")
    print()
    results = overall(args, names)
    moved(results, names)
    sensitivity(args, names)
    bandwidth(args, names)
    features(args, names)


if __name__ == "__main__":
    main()
