"""Runs commands in the laboratory's guest (kernel/lab.sh)."""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
MISSING = 77
LINUX = os.environ.get("LAB_LINUX") or "6.1"  # of the guests
HAS_UFFDIO_MOVE = LINUX != "6.1"  # came with 6.8


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


# Lines that say what is wrong, of GoogleTest, the selftests, Python and the laboratory; each with those before it,
# which say where.
FAILURE = re.compile(r"FAILED|: Failure|^not ok|Error:|error:|terminate called|^lab: ")
BEFORE, MOST = 6, 6000


def failures(text):
    """What a long output says of failures, which need not stand at its end."""
    lines = text.splitlines()
    told = sorted({near for at, line in enumerate(lines) if FAILURE.search(line)
                   for near in range(max(0, at - BEFORE), at + 1)})
    return "\n".join(lines[at] for at in told)[:MOST]


def passed(result):
    assert result.returncode == 0, "\n".join([
        f"status {result.returncode}", failures(result.stdout + result.stderr), "...", result.stdout[-MOST:],
        result.stderr[-MOST:]])
    return result.stdout


def of_same_bits(folder):
    """The summary of a training under Sentinel, which computed what the plain one did, to the last bit."""
    plain, sentinel, summary = (json.loads((folder / f"{name}.json").read_text())
                                for name in ("plain", "sentinel", "summary"))
    for key in ("params_sha256", "optimizer_sha256"):
        assert plain[key] == sentinel[key]
    assert [step["loss"] for step in plain["steps"]] == [step["loss"] for step in sentinel["steps"]]
    return summary
