"""Of all tests that pytest runs. SENTINEL_TURN, a number: half of the tests run, and a quarter of the slow ones and of the
variants of a test that has many; the others with the next numbers. Without it all run."""
import collections
import os
import pathlib

import pytest

MANY = 5  # variants
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


def shared_variant(item):
    """Which variant it is of a fixture of its whole file, each a training of its own that one turn should have; or None."""
    call = getattr(item, "callspec", None)
    if call is None:
        return None
    return next((index for name, index in call.indices.items() if call._arg2scope[name].value != "function"), None)


def pytest_collection_modifyitems(config, items):
    turn = os.environ.get("SENTINEL_TURN")
    if not turn:
        return
    slow = {name: at for at, name in enumerate(slow_tests())}
    functions = collections.defaultdict(list)
    for item in items:
        if item.path.parent != HERE / "kernel":  # run.sh has a turn for each kernel
            functions[f"{item.path.relative_to(HERE.parent)}::{item.originalname}"].append(item)
    waiting = set()
    for position, (name, variants) in enumerate(functions.items()):
        turns = 4 if name in slow or len(variants) >= MANY else 2
        for at, item in enumerate(variants, slow.get(name, position)):  # of two tests one is in this turn, the next in another
            shared = shared_variant(item)
            due, every = (at, turns) if shared is None else (shared, 4)
            if int(turn) % every != due % every:
                waiting.add(item)
    config.hook.pytest_deselected(items=list(waiting))
    items[:] = [item for item in items if item not in waiting]


def pytest_runtest_logreport(report):
    """A failure is told when it happens, and so is a slow test: a run that is cut off later would tell of none."""
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}", flush=True)
    elif report.duration >= SLOW:
        print(f"\n{report.nodeid}, {report.when}: {report.duration:.0f} s", flush=True)
