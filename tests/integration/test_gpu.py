"""`--tiers fast=gpu0,slow=host` where there is no GPU, and where PyTorch knows of none. Sessions on a GPU's
memory are tested in tests/unit/execute/gpu_session_test.cpp, on a device in tests/gpu."""
import ctypes
import os

import pytest

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
