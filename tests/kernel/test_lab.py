"""The laboratory's own tests, those that the others here rely on, and a guest with persistent memory."""

import re
import subprocess

import pytest

from lab import MISSING, ROOT, passed
from test_guest import results

RELIED_ON = ("streams", "environment", "shapes", "storage", "trouble_is_noticed", "log_without_end",
             "kernel_has_a_name")


def test_the_laboratory(tell):
    result = subprocess.run(["bash", ROOT / "kernel/lab/test.sh", *RELIED_ON], capture_output=True, text=True)
    if result.returncode == MISSING:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    tell("the laboratory: " + re.search(r"\d+ passed, 0 failed", result.stdout).group())


def test_tracked_pages_between_dram_and_persistent_memory(lab, tell):
    """Node 1 is movable memory in a slower tier: migration, pins and NUMA hints meet armed pages there."""
    command = 'cd "$LAB_SELFTESTS" && for t in io memory numa; do ./$t || exit 1; done'
    output = passed(lab.run("bash", "-c", command, options=["--shape", "dram+pmem"]))
    tell(f"{len(results(output))} selftests with persistent memory as node 1")
