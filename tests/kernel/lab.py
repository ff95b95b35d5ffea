"""Runs commands in the laboratory's guest (kernel/lab.sh)."""

import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
MISSING = 77


class Lab:
    """Runs commands in guests; `log` is the last guest's kernel log. `boots` and `all_seconds` are of all."""

    boots, all_seconds = 0, 0.0

    def __init__(self, folder):
        self.folder, self.log = folder, ""

    def run(self, *command, **how):
        """The command's result. A guest that the emulator broke (kernel/lab/README.md, What the guest is not) says
        nothing of the kernel: another is booted, twice at most."""
        for _ in range(3):
            result = self._run_once(*command, **how)
            if result.returncode == 0 or "int3: 0000" not in self.log:
                break
            print("the emulator ran an int3 that is no longer there; another guest")
        return result

    def _run_once(self, *command, options=(), timeout=900, **environment):
        log = self.folder / "kernel.log"
        variables = {"LAB_OUT": str(self.folder), "LAB_LOG": str(log), "LAB_TIMEOUT": str(timeout),
                     "OMP_WAIT_POLICY": "passive", "LAB_ENV": "OMP_WAIT_POLICY OMP_NUM_THREADS"}
        began = time.monotonic()
        result = subprocess.run(["bash", ROOT / "kernel/lab.sh", *options, "--", *map(str, command)],
                                cwd=ROOT, capture_output=True, text=True,
                                env={**os.environ, **variables, **environment})
        self.seconds = time.monotonic() - began
        Lab.boots += 1
        Lab.all_seconds += self.seconds
        self.log = log.read_text(errors="replace") if log.exists() else ""
        if result.returncode == MISSING and "lab:" in result.stderr:
            pytest.skip(result.stderr.strip())
        return result


def passed(result):
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    return result.stdout
