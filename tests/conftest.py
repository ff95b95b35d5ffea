"""Of all tests that pytest runs. SENTINEL_TURN, a number: of the variants of a test that has many, and of the slow tests, a
quarter runs, another quarter with the next number. Without it all run."""
import collections
import os
import pathlib

import pytest

MANY, TURNS = 5, 4
SLOW = 30  # seconds
HERE = pathlib.Path(__file__).parent


def slow_tests():
    """The functions that slow.txt names, as `tests/FILE::FUNCTION`."""
    lines = (line.partition("#")[0].strip() for line in (HERE / "slow.txt").read_text().splitlines())
    named = [line for line in lines if line]
    for file, _, function in (line.partition("::") for line in named):
        if f"def {function}(" not in (HERE.parent / file).read_text():
            raise pytest.UsageError(f"tests/slow.txt names {function}, which {file} does not have")
    return named


def pytest_collection_modifyitems(config, items):
    turn = os.environ.get("SENTINEL_TURN")
    if not turn:
        return
    slow = {name: at for at, name in enumerate(slow_tests())}
    functions = collections.defaultdict(list)
    for item in items:
        functions[f"{item.path.relative_to(HERE.parent)}::{item.originalname}"].append(item)
    waiting = set()
    for name, variants in functions.items():
        first = slow.get(name, 0)  # of two slow tests one is in this turn, the next in another
        if name in slow or len(variants) >= MANY:
            waiting.update(item for at, item in enumerate(variants, first) if at % TURNS != int(turn) % TURNS)
    config.hook.pytest_deselected(items=list(waiting))
    items[:] = [item for item in items if item not in waiting]


def pytest_runtest_logreport(report):
    """A failure is told when it happens, and so is a slow test: a run that is cut off later would tell of none."""
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}", flush=True)
    elif report.duration >= SLOW:
        print(f"\n{report.nodeid}, {report.when}: {report.duration:.0f} s", flush=True)
