"""Runs a workload, the first argument, that from its seventh step on keeps 24 MiB more in each, five times. With
LETS_GO in its environment it lets go of all that after two steps more."""
import os
import pathlib
import runpy
import sys

WORKLOADS = pathlib.Path(__file__).resolve().parents[2] / "workloads"
FIRST, TIMES, BYTES = 6, 5, 24 << 20
LAST = FIRST + TIMES + 2 if "LETS_GO" in os.environ else None
kept = []


def main():
    sys.path.insert(0, str(WORKLOADS))
    import common
    plain_step = common.Run.step

    def step(run, number):
        if FIRST <= number < FIRST + TIMES:
            kept.append(b"\1" * BYTES)
        if number == LAST:
            kept.clear()
        return plain_step(run, number)

    common.Run.step = step
    del sys.argv[0]
    runpy.run_path(str(WORKLOADS / sys.argv[0]), run_name="__main__")


if __name__ == "__main__":
    main()
