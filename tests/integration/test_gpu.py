"""`--tiers fast=gpu0,slow=host` where there is no GPU, and where PyTorch knows of none. Sessions on a GPU's
memory are tested in tests/unit/execute/gpu_session_test.cpp, on a device in tests/gpu."""
import ctypes
import json
import os
import pathlib
import subprocess

import pytest

COMPARE = pathlib.Path(__file__).resolve().parent.parent / "gpu" / "compare.py"
TIERS = ("--tiers", "fast=gpu0,slow=host", "--fast", "1G")


def test_no_driver(sentinel):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has NVIDIA's driver")
    except OSError:
        outcome = sentinel("run", *TIERS, "--", "true")
    assert outcome.status == 125
    assert "no CUDA driver here" in outcome.err and "install NVIDIA's" in outcome.err


def test_a_pytorch_without_cuda(sentinel, build, python, tmp_path):
    outcome = sentinel("run", *TIERS, "--", python, "-c", "import torch; print('trains')",
                       env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path),
                                SENTINEL_CUDA=str(build / "lib" / "libsentinel_fake_cuda.so")))
    assert outcome.status == 125 and "trains" not in outcome.out
    assert "is built without CUDA" in outcome.err
    assert (tmp_path / "sentinel" / "local-gpu0.toml").exists()  # measured once, for the next run


def test_the_comparison_runs_without_a_device(python, tmp_path):
    """tests/gpu/compare.py with a small model on the processor: techniques that save memory change no loss."""
    words = [python, COMPARE, "--device", "cpu", "--tiny", "--models", "ViT", "--batch", "2", "--json", tmp_path / "out"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out").read_text())["models"]["ViT"]
    assert set(rows) == {"plain", "save_on_cpu", "checkpoint"}
    assert all(row["losses"] == rows["plain"]["losses"] and row["ms"] > 0 for row in rows.values())
    assert done.stdout.count("same") == 3
