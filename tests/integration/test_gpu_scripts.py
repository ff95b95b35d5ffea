"""tests/gpu without a device: what it builds."""
import json
import os
import pathlib
import subprocess

GPU = pathlib.Path(__file__).resolve().parent.parent / "gpu"


def test_movement_is_measured_with_the_tests_driver(build, tmp_path):
    fake = build / "lib" / "libsentinel_fake_cuda.so"
    done = subprocess.run([build / "bin" / "gpu_movement", tmp_path / "rates.json", "32"], capture_output=True,
                          text=True, env={**os.environ, "SENTINEL_CUDA": str(fake)}, timeout=100)
    assert done.returncode == 0, done.stderr
    rates = json.loads((tmp_path / "rates.json").read_text())
    assert list(rates) == ["plain", "pools", "managed"]
    assert all(row[way] > 0 for row in rates.values() for way in ("in", "out", "both"))
    assert "100 %" in done.stdout.splitlines()[1]


def test_the_build_of_its_own_names_sources_that_exist(tmp_path):
    """Whether they are all that it needs, is told by the build that this is a part of (tests/gpu/CMakeLists.txt)."""
    done = subprocess.run(["cmake", "-S", GPU, "-B", tmp_path, "-G", "Ninja"], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr
    for target in ("pool_engine_test", "gpu_device_test", "gpu_movement"):
        dry = subprocess.run(["ninja", "-C", tmp_path, "-n", target], capture_output=True, text=True, timeout=100)
        assert dry.returncode == 0 and f"Linking CXX executable {target}" in dry.stdout, dry.stdout
