#!/usr/bin/env python3
"""Runs GoogleTest's tests each in a process of its own, so that none that crashes or hangs hides another. Those that
load more of NVIDIA's libraries, or need a patched kernel, come last. Status 1: one failed.

    each_test.py PROGRAM [--seconds 60] [--filter PATTERN]
"""
import argparse
import sys

import bounded

LAST = ("OwnFile", "Cupti", "PatchedKernel")


def names(program, pattern):
    listed = bounded.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], 60)
    if listed.status != 0:
        raise SystemExit(f"{program} lists no tests: {listed.reason()}")
    suite, found = "", []
    for line in listed.out.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  "):
            found.append(suite + name.strip())
    return sorted(found, key=lambda name: any(word in name for word in LAST))


def main():
    bounded.end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60, help="that one may take")
    parser.add_argument("--filter", default="*")
    args = parser.parse_args()
    failed = []
    for name in names(args.program, args.filter):
        ended = bounded.run([args.program, "--gtest_brief=1", f"--gtest_filter={name}"], args.seconds)
        told = "hangs" if ended.status is None else "ok" if ended.status == 0 else f"status {ended.status}"
        print(f"{name}: {told}\n{ended.out}{ended.err}".rstrip(), flush=True)
        if ended.status != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
