"""Tests in the laboratory's guest. Where QEMU or the kernel's source cannot be had, they skip with what the
laboratory says is missing."""

import pathlib
import sys

import pytest

from lab import Lab

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))


def pytest_terminal_summary(terminalreporter):
    if Lab.boots:
        terminalreporter.write_line(f"guests: {Lab.boots}, {Lab.all_seconds:.0f} s with what kernels were built "
                                    "for them; and those of the laboratory's own tests")


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


@pytest.fixture
def tell(capsys):
    """Prints a figure past pytest's capture: what a run has measured belongs into its log."""
    def print_it(text):
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)
    return print_it
