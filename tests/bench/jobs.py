#!/usr/bin/env python3
"""TENSILE's measures, live: one, two and three trainings in one budget, divided by the broker, in fixed equal shares, and
by Linux's swap in a memory cgroup of the same size.

  MSR  memory saved: 1 - peak / plain peak      EOR  extra time: time / plain time - 1      CBR  MSR / EOR

The peaks are those of tensors in fast memory, of all jobs together as the broker sees them; the plain ones are sums of
the jobs' peaks. The times are those of all settled steps of all jobs together, and medians over the rounds. Plain jobs
run at the same time, too, under Sentinel without a limit. With fixed shares each job has `--fast` of its own. Swap's
cgroup holds the budget and what each training holds beside its tensors; what is in memory of these is not known, so swap
has no MSR. With --rate a control group throttles the drive, which needs root, as swap does.

With --peaks the question is another: jobs whose steps are offset share less memory than the sum of their peaks. Their
budget is that share of the sum; each job begins when the one before has done its part of a step. The rows are jobs
with ample memory under the broker, the broker with leases, and equal shares of the same budget.

  jobs.py --python PYTHON [--models resnet,dcgan,lstm] [--budget PERCENT] [--steps N] [--jobs 1,2,3] [--rate 0.3]
  jobs.py --python PYTHON --peaks 85 [--models resnet] [--steps N] [--jobs 2]
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import swap
from throttle import Throttle

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "tests/integration/processes"), str(ROOT / "tests/integration")]
import cgroup  # noqa: E402
from sharing import Broker  # noqa: E402

MODELS = {
    "resnet": ["resnet_cifar.py", "--depth", "20", "--batch", "96"],
    "lstm": ["lstm_lm.py", "--hidden", "384", "--batch", "20", "--vocab", "6000"],
    "dcgan": ["dcgan.py", "--batch", "32"],
    "mobilenet": ["mobilenet.py", "--batch", "64"],
    "mobilenet2": ["mobilenet.py", "--version", "2", "--batch", "32"],
}
# Table 2 of the paper (arXiv:2105.13336): VGG on an RTX 2080 Ti.
PAPER = {1: (0.2001, 0.0838, 2.5112), 2: (0.2295, 0.1016, 3.2256), 3: (0.2767, 0.2793, 1.0478)}
MIB = 1 << 20
SETTLED = 10  # steps before: they warm up, are profiled, and begin the plan
SPARE = 16 * MIB  # of swap's cgroup


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--models", default="resnet", help="of " + ", ".join(MODELS) + "; job i trains the ith, in turns")
    parser.add_argument("--budget", type=float, default=70, help="percent of the sum of the jobs' peaks")
    parser.add_argument("--peaks", type=float, help="percent of the sum of the jobs' peaks, for jobs with offset steps")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", default="1,2,3")
    parser.add_argument("--policy", default="sentinel")
    parser.add_argument("--rate", type=float, help="of the drive, each way, in GB/s")
    parser.add_argument("--slow", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    parser.add_argument("--no-swap", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parsed = parser.parse_args()
    parsed.models = parsed.models.split(",")
    if unknown := set(parsed.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}")
    if parsed.steps <= SETTLED:
        parser.error(f"--steps: more than {SETTLED}")
    return parsed


class Bench:
    def __init__(self, args, folder, throttle):
        self.args, self.folder, self.throttle = args, folder, throttle
        self.machine = throttle.machine(BUILD / "bin/sentinel", folder, SENTINEL_DIR=str(args.slow))[0] if throttle else None
        self.offset_s = 0  # between the beginnings of two jobs

    def script(self, number):
        name, *more = MODELS[self.args.models[number % len(self.args.models)]]
        return [ROOT / "tests/workloads" / name, *more]

    def training(self, number):
        return [self.args.python, *self.script(number), "--steps", str(self.args.steps), "--threads", "1", "--seed",
                str(number + 1), "--json", self.folder / f"run-{number}.json"]

    def together(self, count, launch):
        """`count` jobs at the same time: launch(i) is what stands before the ith one's command. Their records, and
        whether all of them ended well."""
        running = []
        for number in range(count):
            time.sleep(self.offset_s if number else 0)
            words = [*launch(number), *self.training(number)]
            if self.throttle:
                words = self.throttle.inside(*words)
            running.append(subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL))
        if any([process.wait() for process in running]):
            return None
        return [json.loads((self.folder / f"run-{number}.json").read_text()) for number in range(count)]

    def managed(self, count, flags):
        """Under Sentinel; their records and summaries."""
        def launch(number):
            machine = ["--machine", self.machine] if self.machine else []
            return [BUILD / "bin/sentinel", "run", "--quiet", "--slow", self.args.slow, *machine, "--policy",
                    self.args.policy, *flags(number), "--summary", self.folder / f"{number}.json", "--"]
        records = self.together(count, launch)
        if records is None:
            raise SystemExit("a job failed")
        return records, [json.loads((self.folder / f"{number}.json").read_text()) for number in range(count)]

    def swapped(self, count, budget):
        """In one memory cgroup; their records, or why there are none."""
        own = sum(self.own(number) for number in range(count))
        try:
            with contextlib.ExitStack() as stack:
                group = stack.enter_context(cgroup.MemoryGroup(f"sentinel-jobs-{os.getpid()}"))
                group.limit(budget + own + SPARE, swap=True)
                return self.together(count, lambda _: group.inside()) or "killed: out of memory"
        except cgroup.Unavailable as reason:
            return str(reason)

    def own(self, number):
        return swap.own_memory([self.args.python, *self.script(number)])

    def shared(self, count, budget):
        """Under a broker of so many bytes: their records, their summaries, and its list of them at the end."""
        broker = Broker(BUILD / "bin/sentinel", self.folder / "broker.sock", budget, "--sample", "10")
        try:
            records, summaries = self.managed(count, lambda _: [f"--broker={broker.path}"])
            listed = broker.jobs()
        finally:
            broker.end()
        if listed["most_held_bytes"] > budget:
            raise SystemExit(f"{listed['most_held_bytes']} bytes were held of a budget of {budget}")
        return records, summaries, listed

    def peaks(self, count):
        """Rows of jobs with offset steps. `of_peaks`: the most that all held at once, of the sum of their peaks."""
        records, plain = self.managed(count, lambda _: [])
        same, peak = losses(records), sum(one["peak_unlimited_bytes"] for one in plain)
        step_s = statistics.median(step["ms"] for record in records for step in record["steps"][SETTLED:]) / 1e3
        self.offset_s = step_s / count
        budget = int(peak * self.args.peaks / 100) // (2 * MIB) * 2 * MIB
        for how, fast in ("ample memory", 2 * peak), ("leases", budget):
            records, summaries, listed = self.shared(count, fast)
            require_same(same, records, how)
            own = sum(one["peak_fast_bytes"] for one in summaries)
            yield {"jobs": count, "how": how, "of_peaks": listed["most_held_bytes"] / peak, "own_peaks": own / peak,
                   "ms": settled_ms(records), "leases": listed["leases"]}
        each = budget // count // (2 * MIB) * 2 * MIB
        records, summaries = self.managed(count, lambda _: ["--fast", str(each)])
        require_same(same, records, "equal shares")
        own = sum(one["peak_fast_bytes"] for one in summaries)
        yield {"jobs": count, "how": "equal shares", "of_peaks": own / peak, "own_peaks": own / peak,
               "ms": settled_ms(records), "leases": 0}

    def round(self, count):
        """(how, bytes at the peak or none, ms, budget) of each way."""
        records, plain = self.managed(count, lambda _: [])
        peak = sum(one["peak_unlimited_bytes"] for one in plain)
        budget = int(peak * self.args.budget / 100) // (2 * MIB) * 2 * MIB
        yield "plain", peak, settled_ms(records), budget
        same = losses(records)
        each = budget // count // (2 * MIB) * 2 * MIB
        records, summaries = self.managed(count, lambda _: ["--fast", str(each)])
        require_same(same, records, "equal shares")
        yield "equal shares", sum(one["peak_fast_bytes"] for one in summaries), settled_ms(records), budget
        records, _, listed = self.shared(count, budget)
        require_same(same, records, "the broker")
        yield "broker", listed["most_held_bytes"], settled_ms(records), budget
        if not self.args.no_swap:
            found = self.swapped(count, budget)
            if not isinstance(found, str):
                require_same(same, found, "swap")
            yield "Linux's swap", None, found if isinstance(found, str) else settled_ms(found), budget


def losses(records):
    return [[step["loss"] for step in record["steps"]] for record in records]


def require_same(expected, records, how):
    if losses(records) != expected:
        raise SystemExit(f"the losses differ: {how}")


def settled_ms(records):
    return sum(step["ms"] for record in records for step in record["steps"][SETTLED:])


def rows_of(bench, count):
    ways = {}
    for _ in range(bench.args.rounds):
        for how, held, ms, budget in bench.round(count):
            ways.setdefault(how, []).append((held, ms, budget))
    plain_peak = max(held for held, _, _ in ways["plain"])
    plain_ms = statistics.median(ms for _, ms, _ in ways.pop("plain"))
    for how, found in ways.items():
        if failures := [ms for _, ms, _ in found if isinstance(ms, str)]:
            yield {"jobs": count, "how": how, "failure": failures[0]}
            continue
        ms, budget = statistics.median(ms for _, ms, _ in found), found[0][2]
        row = {"jobs": count, "how": how, "budget_bytes": budget, "ms": ms, "plain_ms": plain_ms, "eor": ms / plain_ms - 1}
        if found[0][0] is not None:
            row["peak_bytes"] = max(held for held, _, _ in found)
            row["msr"] = 1 - row["peak_bytes"] / plain_peak
            row["cbr"] = row["msr"] / row["eor"] if row["eor"] > 0 else None
        yield row
    msr, eor, cbr = PAPER[count]
    yield {"jobs": count, "how": "TENSILE, its Table 2", "msr": msr, "eor": eor, "cbr": cbr}


def peak_rows_of(bench, count):
    """Medians over the rounds, and times relative to those with ample memory."""
    rounds = [list(bench.peaks(count)) for _ in range(bench.args.rounds)]
    ample = statistics.median(rows[0]["ms"] for rows in rounds)
    for rows in zip(*rounds):
        middle = {key: statistics.median(row[key] for row in rows) for key in ("ms", "leases")}
        worst = {key: max(row[key] for row in rows) for key in ("of_peaks", "own_peaks")}
        yield {**rows[0], **middle, **worst, "slowdown": middle["ms"] / ample}


def peak_line_of(row):
    return (f"| {row['jobs']} | {row['how']} | {row['of_peaks']:.3f} | {row['own_peaks']:.3f} | {row['leases']:.0f} | "
            f"{row['ms']:.0f} | {row['slowdown']:.3f} |")


def line_of(row):
    if "failure" in row:
        return f"| {row['jobs']} | {row['how']} | {row['failure']} | | | |"
    def cell(key, digits):
        return f"{row[key]:.{digits}f}" if row.get(key) is not None else "-"
    return f"| {row['jobs']} | {row['how']} | {cell('msr', 3)} | {cell('eor', 3)} | {cell('cbr', 2)} | {cell('ms', 0)} |"


def main():
    args = options()
    rows = []
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-jobs-")))
        throttle = stack.enter_context(Throttle(args.slow, args.rate * 1e9)) if args.rate else None
        if not args.no_swap and not args.peaks:
            stack.enter_context(swap.swap_file(args.slow, 6 << 30))
        bench = Bench(args, folder, throttle)
        figures = ("held at once", "own peaks", "leases", "ms", "slowdown") if args.peaks else ("MSR", "EOR", "CBR", "ms")
        heads = ("jobs", "memory divided by", *figures)
        print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
        for count in map(int, args.jobs.split(",")):
            for row in (peak_rows_of if args.peaks else rows_of)(bench, count):
                rows.append(row)
                print((peak_line_of if args.peaks else line_of)(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
