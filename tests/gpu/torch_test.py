#!/usr/bin/env python3
"""Programs of cases.py, plain and in half of the memory that they need: both have to print the same, and the second has
nothing to complain of.

    torch_test.py --sentinel BIN [--cases forked,straight] [--device cpu]
"""
import argparse
import pathlib
import re
import sys

import bounded

HERE = pathlib.Path(__file__).resolve().parent
CASES = ("straight", "one_op_for_all_weights", "out_of_memory", "forked", "another_thread", "a_stream_that_ends",
         "statistics", "another_device", "managed_memory")
OTHERWISE = {"managed_memory": ("straight", ["--gpu-memory", "managed"])}  # a case's program and options
TOLD = 40  # lines of what Sentinel has said where a case failed
LONGEST = 90  # seconds for one; a case, which is two, is a step of steps.py and tells itself what hangs
COMPLAINTS = ("Warning", "WARNING", "initialization error", "illegal")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentinel", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=CASES)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def same_when(line):
    """Without its time, process and addresses."""
    return re.sub(r"0x[0-9a-f]+|\d+", "0", line)


def difference(plain, ours):
    """What is wrong with the second; None if nothing is."""
    for name, ended in (("plain", plain), ("Sentinel", ours)):
        if ended.status is None:
            return f"{name}: not over after {LONGEST} s"
        if ended.status != 0:
            return f"{name}: status {ended.status}: {ended.reason()}"
    for first, second in zip(plain.out.splitlines() + ["the end"], ours.out.splitlines() + ["the end"]):
        if first != second:
            return f"plain: {first}; Sentinel: {second}"
    said = set(map(same_when, plain.err.splitlines()))
    return next((line for line in ours.err.splitlines() if same_when(line) not in said
                 and any(word in line for word in COMPLAINTS)), None)


def main():
    bounded.end_on_sigterm()
    args = options()
    tiers = ["--tiers", "fast=gpu0,slow=host"] if args.device == "cuda" else []
    failed = False
    for case in args.cases:
        program, memory = OTHERWISE.get(case, (case, []))
        words = [args.python, HERE / "cases.py", program, "--device", args.device]
        plain = bounded.run(words, LONGEST)
        flags = [*tiers, *(memory if tiers else []), "--fast", "70%", "--quiet"]
        ours = bounded.run([args.sentinel, "run", *flags, "--", *words], LONGEST)
        wrong = difference(plain, ours)
        if wrong is not None:
            failed = True
            print("\n".join(ours.err.splitlines()[-TOLD:]), file=sys.stderr, flush=True)
        print(f"{case}: {wrong or plain.out.splitlines()[-1]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
