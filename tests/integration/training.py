"""Runs trainings, plain and under the built command, and reads what they leave."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys

WORKLOADS = pathlib.Path(__file__).resolve().parent.parent / "workloads"
SKIPPED = 77  # what a workload exits with where a package is missing
UNREACHABLE = 69  # what framework-env.sh exits with where the package index is


@dataclasses.dataclass
class Outcome:
    """What a command left: its status (as a shell gives it), its output, its files."""
    status: int
    out: str
    err: str
    record: dict = None       # the workload's --json
    summary: dict = None      # the run's --summary
    record_file: pathlib.Path = None

    def phases(self):
        return [step["phase"] for step in self.summary["steps"]]

    def losses(self):
        return [(step["step"], step["loss"]) for step in self.record["steps"]]


def _default_signals():
    """What a background job ignores, it would let its children ignore for good."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def finish(command, env=None, stdin=None, cwd=None, timeout=300, during=None):
    """Runs a command to its end. One that hangs is killed with all it started, and fails the test.
    `during(process)` is called as soon as it runs."""
    process = subprocess.Popen(
        [str(word) for word in command], env={**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})},
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True,
        preexec_fn=_default_signals)
    try:
        if during is not None:
            during(process)
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s: {' '.join(map(str, command))}\n"
                             f"{out[-2000:]}{err[-2000:]}") from None
    status = process.returncode
    return Outcome(status if status >= 0 else 128 - status, out, err)


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else None


def read_lines(path):
    """Of a tensor trace, a JSON object each."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def compare(first, second, *flags):
    """Byte for byte, by the workloads' own comparison; None or what differs."""
    result = subprocess.run([sys.executable, str(WORKLOADS / "compare.py"), *flags,
                             str(first.record_file), str(second.record_file)], capture_output=True, text=True)
    return None if result.returncode == 0 else result.stdout + result.stderr


def python_with(framework):
    """The path of one that has the packages of tests/FRAMEWORK.txt, and why there is none where that is no failure."""
    made = subprocess.run(["bash", WORKLOADS.parent / "framework-env.sh", framework], capture_output=True, text=True)
    if made.returncode == UNREACHABLE:
        return None, f"no environment with {framework}: {made.stderr.strip().splitlines()[-1]}"
    assert made.returncode == 0, made.stderr
    return made.stdout.strip(), None
