"""Of all tests that pytest runs. SENTINEL_TURN, a number: tests of many variants run a third of them, another third with the
next number. Without it all run."""
import collections
import os

MANY, TURNS = 5, 3
SLOW = 30  # seconds


def pytest_collection_modifyitems(config, items):
    turn = os.environ.get("SENTINEL_TURN")
    if not turn:
        return
    variants = collections.defaultdict(list)
    for item in items:
        variants[item.path, item.originalname].append(item)
    waiting = {item for some in variants.values() if len(some) >= MANY
               for at, item in enumerate(some) if at % TURNS != int(turn) % TURNS}
    config.hook.pytest_deselected(items=list(waiting))
    items[:] = [item for item in items if item not in waiting]


def pytest_runtest_logreport(report):
    """A failure is told when it happens, and so is a slow test: a run that is cut off later would tell of none."""
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}", flush=True)
    elif report.duration >= SLOW:
        print(f"\n{report.nodeid}, {report.when}: {report.duration:.0f} s", flush=True)
