#!/usr/bin/env python3
"""Tests, checks, and measurements of what build.sh has built, within so many seconds. With a folder of an earlier call
what is missing there is done alone. First of all whether a device works, one program computes the same, and one model
has its one comparison.

    steps.py --build FOLDER --results FOLDER [--steps memcheck,training] [OPTIONS of compare.py...]
"""
import argparse
import json
import pathlib
import re
import shutil
import sys
import time

import bounded
import compare
import largest
import table
import torch_test
from compared import NO_TIME, Contender, by_other_policies, by_plan_and_by_demand
from results import Results, about

NO_TEST = "no test passed"  # GoogleTest ends with 0 where all were skipped
# But for the tests in which the driver refuses a call, or NVIDIA's own libraries have it refuse some, which would be
# counted. memcheck: what copies reach, and the kernel of touch_kernel.h, in pools, in managed memory and in what the
# driver gives (Kernels*, *ManagedMemory, *AsTheDriverGivesIt*). racecheck, which looks for hazards in kernels' shared
# memory, has nothing to look at. The order of copies and kernels is held by what the tests compare.
CHECKED = "--gtest_filter=-*HasItsName:*IsRefused:*OwnFile*:*Cupti*:*PatchedKernel*"
HERE = pathlib.Path(__file__).resolve().parent
GRACE = 3 * bounded.GRACE  # torch_test.py may need two of it to end what it runs
NAMES = ("gpu_device_test", "torch_test", "training", "vmm_probe", "movement", "memcheck", "gpu_engine_test",
         "largest", "policies")  # the last ones are what no aim asks for


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=lambda text: text.split(","), default=NAMES, help="some of " + ", ".join(NAMES))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=torch_test.CASES, help="of torch_test.py")
    parser.add_argument("--step-seconds", type=float, default=200,
                        help="that one of those before the training may take")
    compare.add_options(parser)
    largest.add_options(parser)
    args = parser.parse_args()
    unknown = set(args.steps) - set(NAMES)
    if unknown:
        parser.error(f"there is no step {', '.join(sorted(unknown))}")
    return args


def passed(out):
    """How many of GoogleTest's."""
    return sum(map(int, re.findall(r"PASSED  \] (\d+) test", out)))


class Steps:
    def __init__(self, args):
        self.args, self.deadline = args, time.monotonic() + args.seconds
        chosen = {**compare.chosen(args), **largest.chosen(args)}
        self.results = Results(args.results / "results.json", about(args.python, chosen),
                               ["tests/gpu/steps.py", *sys.argv[1:]])
        self.failed = []

    def say(self, text):
        print(text, flush=True)

    def wanted(self, name):
        return name.split()[0] in self.args.steps and not table.passed(self.results.data["steps"].get(name))

    def run(self, name, *words, tests=False):
        """One that hangs is ended. What it says is kept, and of a failure told; to be cut short by the call's end is
        none. Of `tests` one has to pass."""
        if not self.wanted(name):
            return
        begin = time.monotonic()
        if begin >= self.deadline:
            return self.say(f"\n{name}: no time left")
        left = self.deadline - begin
        ended = bounded.run(words, min(self.args.step_seconds, left), GRACE)
        row = {"status": ended.status, "seconds": time.monotonic() - begin}
        told = f"status {ended.status}"
        if ended.status is None and left < self.args.step_seconds:
            told = row["failure"] = NO_TIME
        elif ended.status is None:
            told = "killed, for its time was up"
        elif tests and ended.status == 0 and not passed(ended.out):
            told = row["failure"] = NO_TEST
        self.results.put(row, "steps", name)
        self.say(f"\n{name}: {told}\n{(ended.out + ended.err).strip()}")
        if row.get("failure") != NO_TIME and not table.passed(row):
            self.failed.append(name)

    def try_device(self):
        """Each test in a process of its own."""
        self.run("gpu_device_test", sys.executable, HERE / "each_test.py", self.args.build / "gpu_device_test", tests=True)

    def check(self):
        self.run("gpu_engine_test", self.args.build / "gpu_engine_test", "--gtest_brief=1", tests=True)
        if shutil.which("compute-sanitizer"):
            self.run("memcheck", "compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "1",
                     self.args.build / "gpu_device_test", "--gtest_brief=1", CHECKED, tests=True)
        elif self.wanted("memcheck"):
            self.say("\nmemcheck: compute-sanitizer is not here")

    def try_pytorch(self, cases):
        if self.args.sentinel and self.results.data["about"]["devices"]:
            for case in cases:  # each on its own, for all of them may need more than a call has left
                self.run(f"torch_test {case}", sys.executable, HERE / "torch_test.py", "--sentinel", self.args.sentinel,
                         "--python", self.args.python, "--cases", case)

    def probe(self):
        if not self.results.data["about"]["devices"]:
            return
        rows = self.args.results / "probe.json"
        self.run("vmm_probe", self.args.python, HERE / "vmm_probe.py", rows)
        if rows.exists():  # also of what was cut short
            for row in json.loads(rows.read_text()):
                self.results.put(row, "probe", f"{row['load']}, {row['count']} x {row['mib']} MiB")
            rows.unlink()

    def move(self):
        rates = self.args.results / "movement.json"
        self.run("movement", self.args.build / "gpu_movement", rates)
        if rates.exists():
            for part, rows in json.loads(rates.read_text()).items():
                for kind, row in rows.items():
                    self.results.put(row, part, kind)
            rates.unlink()

    def train_first(self):
        """One model, plain and in the first share."""
        args = self.args
        if "training" in args.steps and args.sentinel and self.results.data["about"]["devices"]:
            one = argparse.Namespace(**{**vars(args), "models": args.models[:1], "techniques": False})
            compare.measure(one, self.results, self.deadline, [Contender(args.shares[0], granule=args.granules[0])])

    def train(self):
        if not {"training", "largest", "policies"} & set(self.args.steps):
            return
        if not self.results.data["about"]["devices"]:
            self.failed.append(f"training: {self.args.python} has no PyTorch with CUDA (SENTINEL_GPU_PYTHON names "
                               "another)")
            return
        if not self.args.sentinel:
            self.failed.append("with Sentinel: no command runs here; the others were measured")
        args, results, deadline, failed = self.args, self.results, self.deadline, []
        if "training" in args.steps:
            failed += compare.measure(args, results, deadline, by_plan_and_by_demand(args.shares, args.granules))
        if "largest" in args.steps and args.sentinel:
            failed += largest.measure(args, results, deadline)
        if "policies" in args.steps and args.sentinel:
            failed += compare.measure(args, results, deadline, by_other_policies(args.shares, args.host_memory))
        self.failed += dict.fromkeys(failed)  # what two steps found once


def main():
    bounded.end_on_sigterm()
    args = options()
    args.results.mkdir(parents=True, exist_ok=True)
    steps = Steps(args)
    steps.try_device()
    steps.try_pytorch(args.cases[:1])
    steps.train_first()
    steps.probe()
    steps.move()
    steps.try_pytorch(args.cases[1:])
    steps.check()
    steps.train()
    steps.say("\n" + table.text(steps.results.data))
    if steps.failed:
        steps.say("failed:\n  " + "\n  ".join(steps.failed))
    return 1 if steps.failed else 0


if __name__ == "__main__":
    sys.exit(main())
