"""TENSILE's measures, live: one, two and three trainings in one budget, divided by the broker and in fixed equal shares.

  MSR  memory saved: 1 - peak / plain peak      EOR  extra time: time / plain time - 1      CBR  MSR / EOR

The peaks are those of tensors in fast memory, of all jobs together as the broker sees them; the plain ones are sums of
the jobs' peaks. The times are those of all steps of all jobs together, after the steps in which they are profiled. Plain
jobs run at the same time, too, under Sentinel without a limit. With fixed shares each job has `--fast` of its own.

  /usr/bin/python3 tests/bench/jobs.py --python PYTHON [--model NAME] [--budget PERCENT] [--steps N] [--jobs 1,2,3]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests/integration/processes"))
from sharing import Broker  # noqa: E402

MODELS = {
    "resnet": ["resnet_cifar.py", "--depth", "20", "--batch", "96"],
    "lstm": ["lstm_lm.py", "--hidden", "384", "--batch", "20", "--vocab", "6000"],
    "dcgan": ["dcgan.py", "--batch", "32"],
    "mobilenet": ["mobilenet.py", "--batch", "64"],
}
# Table 2 of the paper (arXiv:2105.13336): VGG on an RTX 2080 Ti.
PAPER = {1: (0.2001, 0.0838, 2.5112), 2: (0.2295, 0.1016, 3.2256), 3: (0.2767, 0.2793, 1.0478)}
MIB = 1 << 20


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--model", choices=MODELS, default="resnet")
    parser.add_argument("--budget", type=float, default=70, help="percent of the sum of the jobs' peaks")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--jobs", default="1,2,3")
    parser.add_argument("--policy", default="sentinel")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def train(args, folder, count, flags):
    """`count` jobs at the same time; their summaries. flags(i): of `sentinel run` for job i."""
    running = []
    for number in range(count):
        script, *more = MODELS[args.model]
        summary = folder / f"{number}.json"
        words = [BUILD / "bin/sentinel", "run", "--quiet", "--policy", args.policy, *flags(number), "--summary", summary,
                 "--", args.python, ROOT / "tests/workloads" / script, *more, "--steps", str(args.steps), "--threads", "1",
                 "--seed", str(number + 1)]
        running.append((summary, subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)))
    for summary, process in running:
        if process.wait() != 0:
            raise SystemExit(f"job {summary.stem} failed")
    return [json.loads(summary.read_text()) for summary, _ in running]


def milliseconds(summaries):
    return sum(step["ms"] for one in summaries for step in one["steps"] if step["phase"] == "steady")


def measures(peak, ms, plain_peak, plain_ms):
    msr, eor = 1 - peak / plain_peak, ms / plain_ms - 1
    return msr, eor, msr / eor if eor > 0 else None


def main():
    args = options()
    rows = []
    with tempfile.TemporaryDirectory(prefix="sentinel-jobs-") as name:
        folder = pathlib.Path(name)
        for count in map(int, args.jobs.split(",")):
            plain = train(args, folder, count, lambda _: [])
            peak = sum(one["peak_unlimited_bytes"] for one in plain)
            budget = int(peak * args.budget / 100) // (2 * MIB) * 2 * MIB
            equal = train(args, folder, count, lambda _, each=budget // count: ["--fast", str(each)])
            broker = Broker(BUILD / "bin/sentinel", folder / "broker.sock", budget, "--sample", "10")
            shared = train(args, folder, count, lambda _, path=broker.path: [f"--broker={path}"])
            held = broker.jobs()["most_held_bytes"]
            broker.end()
            for label, found, most in (
                    ("broker", shared, held), ("equal shares", equal, sum(one["peak_fast_bytes"] for one in equal))):
                msr, eor, cbr = measures(most, milliseconds(found), peak, milliseconds(plain))
                rows.append({"jobs": count, "how": label, "msr": msr, "eor": eor, "cbr": cbr, "peak_bytes": most,
                             "budget_bytes": budget, "ms": milliseconds(found), "plain_ms": milliseconds(plain)})
            msr, eor, cbr = PAPER[count]
            rows.append({"jobs": count, "how": "TENSILE, its Table 2", "msr": msr, "eor": eor, "cbr": cbr})
    print(f"{args.model}, {args.budget:g} % of the peaks, {args.steps} steps\n")
    print("| jobs | memory divided by | MSR | EOR | CBR |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        cbr = "-" if row["cbr"] is None else f"{row['cbr']:.2f}"
        print(f"| {row['jobs']} | {row['how']} | {row['msr']:.3f} | {row['eor']:.3f} | {cbr} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
