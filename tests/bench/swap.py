"""Linux's swap for benchmarks: a file of it for a while, and what a training holds beside what could be swapped."""
import contextlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import cgroup  # noqa: E402


class NoSwap(Exception):
    """Why there is none to be had here."""


def own_memory(training):
    """Bytes that a training, its interpreter, script and arguments, holds in steps of the smallest batch: interpreter,
    framework and what it keeps to work with, weights, gradients, optimizer state."""
    with cgroup.MemoryGroup(f"sentinel-bench-{os.getpid()}") as group:
        subprocess.run(group.inside(*training, "--batch", "2", "--steps", "2"), check=True, capture_output=True)
        return group.peak()


@contextlib.contextmanager
def swap_file(folder, size):
    """Swap on the same disk, for as long as the comparison lasts."""
    path = pathlib.Path(folder) / f"sentinel-bench-{os.getpid()}.swap"
    try:
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        path.chmod(0o600)
        for program in ("mkswap", "swapon"):
            done = subprocess.run([program, path], capture_output=True, text=True)
            if done.returncode != 0:
                raise NoSwap(f"no swap here: {done.stderr.strip()}")
        yield
    finally:
        subprocess.run(["swapoff", path], capture_output=True)
        path.unlink(missing_ok=True)
