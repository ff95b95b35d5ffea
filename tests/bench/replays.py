#!/usr/bin/env python3
"""What live recomputation is worth on a slow drive, or on this one: steady steps of trainings within a share of their
memory, plain, with moves alone, with tensors that are made again, and beside torch.utils.checkpoint around every block in
the same memory. The drive of the slow tier is throttled by a control group, which needs root. In turns; medians over all
rounds.

    replays.py --python PYTHON [--models resnet20 bert ...] [--rate 0.3] [--fast 20%] [--policy auto] [--rounds 3]

Every loss of a model is the same to the last bit in all of them, and so is what was trained where no block is
checkpointed; else the benchmark ends with 1.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from throttle import TOLERANCE, Throttle

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The script, its options, and whether it has blocks for torch.utils.checkpoint.
MODELS = {
    "resnet20": ("resnet_cifar.py", ["--depth", "20", "--batch", "128"], True),
    "resnet32": ("resnet_cifar.py", ["--depth", "32", "--batch", "128"], True),
    "mobilenet1": ("mobilenet.py", ["--version", "1", "--batch", "64"], True),
    "mobilenet2": ("mobilenet.py", ["--version", "2", "--batch", "48"], True),
    "bert": ("bert_mlm.py", ["--layers", "6", "--hidden", "512", "--heads", "8", "--batch", "4"], True),
    "dcgan": ("dcgan.py", ["--batch", "64"], False),
    "lstm": ("lstm_lm.py", ["--batch", "64"], False),
}
SETTLED = 8  # steps before: they warm up, are profiled, and begin the plan
KINDS = ("plain", "moves", "replays", "checkpoint", "checkpoint, all memory")


class Bench:
    def __init__(self, args, throttle, folder):
        self.args, self.throttle, self.folder = args, throttle, folder
        self.sentinel = args.build / "bin" / "sentinel"
        self.machine = self.measured()

    def finish(self, command, **environment):
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.args.threads), "SENTINEL_DIR": str(self.args.slow),
                       **environment}
        ran = self.throttle.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stderr[-4000:]}")
        return ran

    def measured(self):
        machine, rates = self.throttle.machine(self.sentinel, self.folder, OMP_NUM_THREADS=str(self.args.threads),
                                               SENTINEL_DIR=str(self.args.slow))
        print(f"The drive {self.throttle.drive} was measured with {rates['read'] / 1e9:.3f} GB/s to read and "
              f"{rates['write'] / 1e9:.3f} GB/s to write.\n", file=sys.stderr)
        return machine

    def within(self, fast, recompute, summary, profile=None):
        return [self.sentinel, "run", "--quiet", "--machine", self.machine, "--policy", self.args.policy, "--fast", fast,
                "--strict", "--summary", summary, *(["-o", profile] if profile else []), "--"], {
                    "SENTINEL_RECOMPUTE": "1" if recompute else "0"}

    def train(self, model, kind, fast, checkpoint):
        """The record of one training, and its summary where it was managed."""
        script, options, _ = MODELS[model]
        record, summary = self.folder / "record.json", self.folder / "summary.json"
        profile = self.folder / f"{model}.sentinel"
        command = [self.args.python, ROOT / "tests" / "workloads" / script, *options, "--steps", str(self.args.steps),
                   "--json", record, *(["--checkpoint-blocks"] if checkpoint else [])]
        environment = {}
        if fast is not None:
            launch, environment = self.within(fast, kind == "replays", summary, profile if kind == "moves" else None)
            command = launch + command
        before = self.throttle.passed()
        self.finish(command, **environment)
        run = json.loads(summary.read_text()) if fast is not None else None
        if run:
            self.check_traffic(run, [now - then for now, then in zip(self.throttle.passed(), before)])
        return json.loads(record.read_text()), run

    def check_traffic(self, run, passed):
        """All that the engine moved went through the group, and no faster than it may: the throttle held for it."""
        for way, through, bytes_of in (("read", passed[0], "reading"), ("written", passed[1], "writing")):
            steps = [step for step in run["steps"] if bytes_of in step]
            moved, seconds = sum(step[bytes_of]["bytes"] for step in steps), sum(step["ms"] for step in steps) / 1e3
            if through < 0.95 * moved:
                sys.exit(f"of {moved} bytes that were {way}, the control group has seen {through}: they were not "
                         "throttled")
            if moved > (1 + TOLERANCE) * self.throttle.rate * seconds:
                sys.exit(f"{moved} bytes were {way} in {seconds:.2f} s, faster than the throttle lets them through")

    def bounds(self, model, budget):
        """Of a step, in ms: with moves alone, and with replays."""
        ran = subprocess.run([self.sentinel, "simulate", self.folder / f"{model}.sentinel", "--machine", self.machine,
                              "--fast", str(budget), "--policy", "sentinel", "--json"], check=True,
                             stdout=subprocess.PIPE, text=True)
        row, = json.loads(ran.stdout)["results"]
        return [row[key] / 1e3 if row[key] else None for key in ("swap_lower_bound_us", "lower_bound_us")]

    def compare(self, model):
        """All rounds of one model: medians by kind."""
        took, records, runs = {kind: [] for kind in KINDS}, {}, {}
        budget = 0
        for _ in range(self.args.rounds):
            for kind in KINDS:
                checkpoint = kind.startswith("checkpoint")
                if kind not in self.args.kinds or checkpoint and not MODELS[model][2]:
                    continue
                # A share is of the training's own peak, which is lower with checkpoints.
                shares = {"moves": self.args.fast, "replays": self.args.fast, "checkpoint": str(budget)}
                fast = shares.get(kind)
                record, run = self.train(model, kind, fast, checkpoint)
                took[kind].append(statistics.median(step["ms"] for step in record["steps"][SETTLED:]))
                self.check_record(model, kind, record, records)
                if run:
                    runs[kind] = run
                    budget = run["fast_limit_bytes"]
        return {kind: statistics.median(values) for kind, values in took.items() if values}, runs, budget

    @staticmethod
    def check_record(model, kind, record, records):
        first = records.setdefault("first", record)
        if [step["loss"] for step in record["steps"]] != [step["loss"] for step in first["steps"]]:
            sys.exit(f"{model}, {kind}: the losses differ from those of the plain training")
        trained = ("params_sha256", "optimizer_sha256")
        if not kind.startswith("checkpoint") and any(record[key] != first[key] for key in trained):
            sys.exit(f"{model}, {kind}: the weights or the optimizer's state differ")


def late_median(run, value):
    return statistics.median(value(step) for step in run["steps"][SETTLED:])


def line_of(model, took, runs, budget, bounds):
    def ms(kind):
        return f"{took[kind]:.0f}" if kind in took else "none"

    def written(kind):
        return f"{late_median(runs[kind], lambda s: s.get('writing', {}).get('bytes', 0)) / 2**20:.0f}" \
            if kind in runs else "none"

    replays = late_median(runs["replays"], lambda step: step.get("replays", 0))
    replay_ms = late_median(runs["replays"], lambda step: step.get("replay_ms", 0))
    peaks = [f"{runs[kind]['peak_unlimited_bytes'] / 2**20:.0f}" if kind in runs else "none"
             for kind in ("moves", "checkpoint")]
    foretold = [f"{runs[kind]['predicted_ms']:.0f}" for kind in ("moves", "replays")]
    cells = [model, ", ".join(peaks), f"{budget / 2**20:.0f}", *map(ms, KINDS), ", ".join(foretold),
             f"{replays:.0f} in {replay_ms:.0f}",
             ", ".join(map(written, ("moves", "replays", "checkpoint"))),
             ", ".join(f"{bound:.0f}" if bound else "none" for bound in bounds)]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="one that has PyTorch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--slow", type=pathlib.Path, default=pathlib.Path("/var/tmp"), help="the slow tier's folder")
    parser.add_argument("--rate", type=float, default=0.3, help="of the drive, each way, in GB/s; 0: as it is")
    parser.add_argument("--fast", default="20%", help="of the peak without checkpoints")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS),
                        help="moves and replays are always among them")
    args = parser.parse_args()
    args.kinds += ["moves", "replays"]
    print("| model | peak MiB, with checkpoints | budget MiB | plain ms | moves | replays | checkpoint "
          "| checkpoint, all memory | foretold: moves, replays "
          "| replays, ms | MiB written: moves, replays, checkpoint | bound ms: moves, replays |")
    print("|" + " --- |" * 12, flush=True)
    with tempfile.TemporaryDirectory() as folder, Throttle(args.slow, args.rate * 1e9) as throttle:
        bench = Bench(args, throttle, pathlib.Path(folder))
        for model in args.models:
            took, runs, budget = bench.compare(model)
            print(line_of(model, took, runs, budget, bench.bounds(model, budget)), flush=True)


if __name__ == "__main__":
    main()
