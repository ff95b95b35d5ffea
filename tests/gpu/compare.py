#!/usr/bin/env python3
"""Training in a share of a GPU's memory, beside what people do today: plain PyTorch, saved tensors on the host
(torch.autograd.graph.save_on_cpu), activation checkpointing, and Sentinel with 20, 40 and 60 % of the peak, by plans,
by demand alone and with DeepUM's tables. Prints a table a model and what it comes to, and writes all of it as JSON.

    compare.py --sentinel BIN [--models A,B] [--shares 40,20,60] [--only LABEL;LABEL] [--seconds 420] [--json FILE]

A model's plain training and Sentinel's first row come before anything else of the next model. With a FILE of an
earlier call what is missing there is measured alone, and plain PyTorch again, for each call's
figures are held against its own. Where it failed it is tried once more; all else of that model waits for it.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import bounded
import table
from compared import (BASELINES, GRANULE, MODELS, NO_TIME, SHARES, Contender, by_other_policies,
                      by_plan_and_by_demand, without_plain, wrong)
from results import Results, about

HERE = pathlib.Path(__file__).resolve().parent
TOLD = 40  # lines of what a training that failed has said
STEPS = 10  # the first three or four warm up and are profiled


def add_options(parser):
    parser.add_argument("--sentinel", type=pathlib.Path, help="the command; without it the others are measured alone")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--shares", type=lambda text: [int(share) for share in text.split(",")], default=SHARES)
    parser.add_argument("--granules", type=lambda text: text.split(","), default=[GRANULE],
                        help="sizes of chunks for the first share (2M,16M); all else is measured with the first")
    parser.add_argument("--only", type=lambda text: text.split(";"), help="labels of Sentinel's rows; '': none of them")
    parser.add_argument("--no-techniques", dest="techniques", action="store_false",
                        help="leave out checkpointing, saved tensors on the host, and plain PyTorch once more")
    parser.add_argument("--seconds", type=float, default=420, help="what is not over by then is left out")
    parser.add_argument("--each", type=float, default=120, help="seconds that a training may take")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="full", help="of the models: full, small, or tiny to test this script")
    parser.add_argument("--gpu-memory", default="pools", choices=("auto", "pools", "managed"))
    parser.add_argument("--profiles", type=pathlib.Path, help="folder for the profile of each model in the first share")
    parser.add_argument("--host-memory", help="bytes (8G): of the first share, also with so much of the host's memory "
                        "and a file below it")


def chosen(args):
    """What all rows have in common. Their labels tell the rest."""
    return {"size": args.size, "batch": args.batch or "its own", "steps": STEPS, "device": args.device,
            "gpu memory": args.gpu_memory}


def training(args, model, *flags, size=None):
    """The words of one."""
    words = [args.python, HERE / "train.py", model, "--device", args.device, "--size", size or args.size, *flags]
    return list(map(str, words))


def under(args, contender, summary, profile, words):
    """The words under `sentinel run`."""
    chosen = {"--fast": contender.share and f"{contender.share}%", "--policy": contender.policy,
              "--host-memory": contender.host, "--granule": contender.granule if contender.granule != GRANULE else None}
    flags = [word for flag, value in chosen.items() if value for word in (flag, value)]
    return [args.sentinel, "run", "--tiers", "fast=gpu0,slow=host", "--gpu-memory", args.gpu_memory, *flags,
            "--summary", summary, "-o", profile, "--", *words]


def row_of(run, reference):
    """Of a record of train.py. The first half of the steps is not counted."""
    if "failure" in run:
        return {"failure": run["failure"]}
    times = [step["ms"] for step in run["steps"]]
    row = {"ms": statistics.median(times[len(times) // 2:]), "peak_bytes": run["peak_bytes"], "times": times,
           "losses": [step["loss"] for step in run["steps"]]}
    if reference and "failure" not in reference:
        row["of_plain"] = reference["ms"] / row["ms"]
        row["same"] = row["losses"] == reference["losses"]
    return row


class Comparison:
    def __init__(self, args, results, folder, deadline):
        self.args, self.results, self.deadline = args, results, deadline
        self.record, self.summary, self.profile = (folder / name for name in ("run.json", "summary.json", "run.sentinel"))
        self.again = f"plain, call {results.call + 1}"

    def missing(self, model, label):
        """What was not measured, or could not be held against its call's plain training, and may be yet."""
        rows = self.results.data["models"].get(model, {})
        if without_plain(rows):
            return False
        row = rows.get(label, {"failure": NO_TIME})
        return row["failure"] == NO_TIME if "failure" in row else label != "plain" and "same" not in row

    def try_plain_again(self, model):
        """Where it failed in an earlier call: the device may have been another's then, and what failed beside it is
        missing."""
        rows = self.results.data["models"].get(model, {})
        if not without_plain(rows) or rows["plain"]["call"] == self.results.call or self.deadline <= time.monotonic():
            return
        self.begin(model, ["plain"])
        if not without_plain(rows):
            for label in [label for label, row in rows.items() if "failure" in row]:
                del rows[label]

    def reference(self, model):
        """This call's plain training; None before it was measured."""
        rows = self.results.data["models"].get(model, {})
        return next((rows[label] for label in ("plain", self.again)
                     if label in rows and rows[label]["call"] == self.results.call), None)

    def begin(self, model, labels):
        """What PyTorch does with the techniques named; plain first, where this call has not measured that yet."""
        known = "plain" in labels or self.reference(model)
        labels = labels if known else [self.again, *labels]
        runs, reason, _ = self.trained(model, labels, *self.words(
            model, "--techniques", ",".join(BASELINES.get(label, "none") for label in labels)))
        for label, run in zip(labels, runs + [{"failure": reason}] * len(labels)):
            row = row_of(run, self.reference(model))
            if label in BASELINES or row.get("failure") != NO_TIME:
                self.results.put(row, "models", model, label)

    def go_on(self, model, contender):
        """Sentinel."""
        runs, reason, said = self.trained(model, [contender.label],
                                          *under(self.args, contender, self.summary, self.profile, self.words(model)))
        row = row_of(runs[0] if runs else {"failure": reason}, self.reference(model))
        if self.summary.exists():
            row["summary"] = json.loads(self.summary.read_text())
        if said:
            row["said"] = said
        if self.args.profiles and self.profile.exists() and contender == Contender(self.args.shares[0]):
            self.args.profiles.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.profile, self.args.profiles / f"{model}.sentinel")
        self.results.put(row, "models", model, contender.label)

    def words(self, model, *flags):
        batch = ["--batch", self.args.batch] if self.args.batch else []
        return training(self.args, model, "--steps", STEPS, "--json", self.record, *batch, *flags)

    def trained(self, model, labels, *words):
        """Records of those that ended, what kept the others from it, and what Sentinel said."""
        for path in (self.record, self.summary, self.profile):
            path.unlink(missing_ok=True)
        left = self.deadline - time.monotonic()
        if left <= 0:
            return [], NO_TIME, []
        print(f"{model}: {', '.join(labels)}", file=sys.stderr, flush=True)
        ended = bounded.run(words, min(left, self.args.each))
        runs = json.loads(self.record.read_text()) if self.record.exists() else []
        if ended.status != 0 and len(labels) == 1:
            runs = []  # what fails, or does not end, when its record is written, has failed
        said = [line for line in ended.err.splitlines() if line.startswith("sentinel: ")]
        if ended.status != 0:
            print("\n".join(ended.err.splitlines()[-TOLD:]), file=sys.stderr, flush=True)
        if ended.status is None:
            return runs, NO_TIME if left < self.args.each else f"not over after {self.args.each:.0f} s", said
        return runs, ended.reason(), said


def measure(args, results, deadline, contenders):
    """What is missing of plain PyTorch and these. A model's plain training and the first share come first, then the
    other techniques, and then the next contenders of all models before those after them of any."""
    candidates = [one for one in contenders if args.sentinel and (args.only is None or one.label in args.only)]
    with tempfile.TemporaryDirectory(prefix="sentinel-gpu-") as name:
        comparison = Comparison(args, results, pathlib.Path(name), deadline)
        for model in args.models:
            comparison.try_plain_again(model)
        wanted = {model: [one for one in candidates if comparison.missing(model, one.label)] for model in args.models}
        first = [one for one in candidates if (one.share, one.policy, one.host) == (args.shares[0], None, None)]
        for model in args.models:
            plain = [label for label in ("plain",) if comparison.missing(model, label)]
            if plain or wanted[model] and not comparison.reference(model):
                comparison.begin(model, plain)
            for one in first:
                if one in wanted[model]:
                    comparison.go_on(model, one)
        for model in args.models:
            labels = [label for label in BASELINES if comparison.missing(model, label)]
            if labels and args.techniques:
                comparison.begin(model, labels)
        for one in candidates:
            for model in args.models:
                if one in wanted[model] and one not in first:
                    comparison.go_on(model, one)
    return [f"{model}: {label}" for model in args.models for label in wrong(results.data["models"][model])]


def main():
    bounded.end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    results = Results(args.json, about(args.python, chosen(args)), ["compare.py", *sys.argv[1:]])
    failed = measure(args, results, time.monotonic() + args.seconds, by_plan_and_by_demand(args.shares, args.granules)
                     + by_other_policies(args.shares, args.host_memory))
    print(table.text(results.data))
    if failed:
        print(f"wrong or failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
