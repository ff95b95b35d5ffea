"""Of all tests that pytest runs."""


def pytest_runtest_logreport(report):
    """A failure is told when it happens: a run that is cut off later would tell of none."""
    if report.failed:
        print(f"\n{report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}", flush=True)
