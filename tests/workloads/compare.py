"""Are two runs the same? Compares two records written with --json: losses, evaluations,
hashes of parameters and optimizer state; not times, not memory. With --tail the second
may be a resumed run: only the steps it did itself are compared. Exit 0 same, 1 not."""

import argparse
import json
import pathlib
import sys


def load(file):
    record = json.loads(pathlib.Path(file).read_text())
    del record["peak_rss_kb"]
    for step in record["steps"]:
        for took in ("ms", "user_s", "system_s", "stolen_s"):
            step.pop(took, None)
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--tail", action="store_true", help="the second run was resumed")
    args = parser.parse_args()
    first, second = load(args.first), load(args.second)
    if args.tail:
        begun = second["steps"][0]["step"] if second["steps"] else float("inf")
        for part in ("steps", "evaluations"):
            if part in first:
                first[part] = [entry for entry in first[part] if entry["step"] >= begun]
        if not first.get("evaluations", True):
            del first["evaluations"]

    for ours, theirs in zip(first["steps"], second["steps"]):
        if ours != theirs:
            print(f"first difference at step {ours['step']}: {ours} and {theirs}")
            sys.exit(1)
    for part in sorted(first.keys() | second.keys()):
        if first.get(part) != second.get(part):
            print(f"the runs differ in {part}")
            sys.exit(1)
    print(f"the same to the last bit: {len(second['steps'])} steps")


if __name__ == "__main__":
    main()
