"""`--tiers fast=gpu0,slow=host` where there is no GPU, and where PyTorch knows of none. Sessions on a GPU's
memory are tested in tests/unit/runtime/gpu/gpu_session_test.cpp, on a device in tests/gpu; that folder's scripts in
test_gpu_comparison.py, test_gpu_run.py and test_gpu_programs.py."""
import ctypes
import os
import subprocess

import pytest

TIERS = ("--tiers", "fast=gpu0,slow=host", "--fast", "1G")


@pytest.mark.parametrize("measured", [False, True], ids=["a new machine", "measured before"])
def test_no_driver(sentinel, build, tmp_path, measured):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has NVIDIA's driver")
    except OSError:
        place = dict(os.environ, XDG_CACHE_HOME=str(tmp_path))
    if measured:
        fake = str(build / "lib" / "libsentinel_fake_cuda.so")
        assert sentinel("run", *TIERS, "--", "true", env=dict(place, SENTINEL_CUDA=fake)).status == 0
        assert (tmp_path / "sentinel" / "local-gpu0-pools.toml").exists()
    outcome = sentinel("run", *TIERS, "--", "true", env=place)
    assert outcome.status == 125
    assert "no CUDA driver here" in outcome.err and "install NVIDIA's" in outcome.err


def test_a_pytorch_without_cuda(sentinel, build, python, tmp_path):
    outcome = sentinel("run", *TIERS, "--", python, "-c", "import torch; print('trains')",
                       env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path),
                                SENTINEL_CUDA=str(build / "lib" / "libsentinel_fake_cuda.so")))
    assert outcome.status == 125 and "trains" not in outcome.out
    assert "is built without CUDA" in outcome.err
    assert (tmp_path / "sentinel" / "local-gpu0-pools.toml").exists()  # measured once, for the next run


def test_a_library_of_gpudirect_storage_is_tried_before_anything_is_measured(sentinel, build, tmp_path):
    fake = str(build / "lib" / "libsentinel_fake_cuda.so")
    place = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), SENTINEL_CUDA=fake, SENTINEL_CUFILE=fake,
                 SENTINEL_DIR="/var/tmp")
    for wrong, reason in (({"SENTINEL_CUFILE": "libno-such.so.0"}, "needs NVIDIA's GPUDirect Storage"),
                          ({"SENTINEL_FAKE_CUDA_FAIL": "cuFileWrite:1"}, "cuFileWrite: a first granule"),
                          ({"SENTINEL_FAKE_CUDA_FAIL": "cuFileRead:1"}, "cuFile's error 5008")):
        outcome = sentinel("run", *TIERS, "--host-memory", "64M", "--io", "cufile", "--", "echo", "started",
                           env=dict(place, **wrong))
        assert outcome.status == 125 and reason in outcome.err and not outcome.out
    assert not (tmp_path / "sentinel" / "local-gpu0-pools.toml").exists()


STATISTICS = """
import ctypes, os, sys, types
import torch.cuda  # whose own summary is printed
sys.path.insert(0, os.environ["PLACE"])
from sentinel import _torch_gpu
core = ctypes.CDLL(os.environ["LIBRARY"])
core.sentinel_malloc.restype = ctypes.c_void_p
assert core.sentinel_attach(b"torch 2.9", 1) == 0 and core.sentinel_gpu() == 0
plugged, used_on = [], ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda address, stream: None)

class Allocator:
    def __init__(self, *words):
        self.words = words
    def allocator(self):
        return self
    def set_record_stream_fn(self, function):
        self.record_stream = function

torch.cuda.memory.CUDAPluggableAllocator = Allocator
torch.cuda.memory.change_current_allocator = plugged.append
torch.cuda.memory._get_device_index = lambda device, optional: 0 if device is None else device
torch.cuda.memory.is_initialized = lambda: True
_torch_gpu._plug_in(torch, core, types.SimpleNamespace(_name="adaptor.so", sentinel_torch_gpu_record_stream=used_on))
assert plugged[0].words == ("adaptor.so", "sentinel_torch_gpu_malloc", "sentinel_torch_gpu_free")
assert plugged[0].record_stream == ctypes.cast(used_on, ctypes.c_void_p).value  # or record_stream() would do nothing
figures = lambda: torch.cuda.memory.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
first, second = core.sentinel_malloc(1 << 20), core.sentinel_malloc(1 << 21)
core.sentinel_free(ctypes.c_void_p(second))
assert figures() == {"current": 1 << 20, "peak": 3 << 20, "allocated": 0, "freed": 0}, figures()
torch.cuda.reset_peak_memory_stats(1)
assert torch.cuda.max_memory_allocated() == 3 << 20
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated(0) == torch.cuda.memory_allocated() == 1 << 20
assert torch.cuda.memory_allocated(1) == torch.cuda.max_memory_reserved(1) == 0
other = ctypes.c_void_p()
assert core.sentinel_unmanaged_malloc(1, ctypes.c_size_t(3 << 20), ctypes.byref(other)) == 0 and other
assert torch.cuda.memory_allocated(1) == torch.cuda.memory_reserved(1) == 3 << 20
core.sentinel_unmanaged_free(1, other)
assert torch.cuda.memory_allocated(1) == 0 and torch.cuda.max_memory_allocated(1) == 3 << 20
torch.cuda.reset_peak_memory_stats(1)
assert torch.cuda.max_memory_allocated(1) == 0 and torch.cuda.memory_allocated() == 1 << 20
told = " ".join(torch.cuda.memory_summary().replace("KiB", "KB").split())
assert "Allocated memory | 1024 KB | 1024 KB | 0 B" in told, told
assert "device ID 1" in torch.cuda.memory_summary(1, abbreviated=True)
print("as told")
"""


def test_statistics_are_ours(build, python, tmp_path):
    """What PyTorch's Python side is given, with a driver's library of the tests."""
    place = dict(os.environ, SENTINEL_FRAMEWORK="none", SENTINEL_MODE="run", SENTINEL_FAST="64M",
                 SENTINEL_TIERS="fast=gpu0,slow=host",
                 SENTINEL_CUDA=str(build / "lib" / "libsentinel_fake_cuda.so"), XDG_CACHE_HOME=str(tmp_path),
                 PLACE=str(build / "lib" / "sentinel" / "python"), LIBRARY=str(build / "lib" / "libsentinel.so"))
    done = subprocess.run([python, "-c", STATISTICS], env=place, capture_output=True, text=True, timeout=100)
    assert done.stdout == "as told\n", done.stderr


REFUSALS = """
import os, sys
import torch
sys.path.insert(0, os.environ["PLACE"])
from sentinel import _torch_gpu
set_benchmark = torch._C._set_cudnn_benchmark
_torch_gpu._keep_cudnn_from_searching(torch)
_torch_gpu._refuse_graphs(torch)
torch.backends.cudnn.benchmark = False
print("off", file=sys.stderr)
torch.backends.cudnn.benchmark = True
assert not torch._C._get_cudnn_benchmark()
with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
    assert not torch.backends.cudnn.benchmark and torch.backends.cudnn.deterministic
assert not torch.backends.cudnn.deterministic
try:
    torch.cuda.CUDAGraph.capture_begin(None, pool=None)
except RuntimeError as error:
    print(error)
set_benchmark(True)  # PyTorch's own still does, and is what is asked
assert torch.backends.cudnn.benchmark
"""


def test_what_does_not_work_on_a_gpu_is_kept_off(build, python):
    done = subprocess.run([python, "-c", REFUSALS], capture_output=True, text=True, timeout=100, env=dict(
        os.environ, SENTINEL_FRAMEWORK="none", PLACE=str(build / "lib" / "sentinel" / "python")))
    assert done.returncode == 0, done.stderr
    assert "CUDA graphs cannot be used" in done.stdout
    assert done.stderr == ("off\nsentinel: torch.backends.cudnn.benchmark stays off: the search asks for PyTorch's "
                           "own allocator\n")


def test_what_cannot_count_is_refused_before_the_command_starts(sentinel, build, tmp_path):
    """With the tests' driver, whose device does not use pageable memory unless it is told to."""
    place = dict(os.environ, SENTINEL_CUDA=str(build / "lib" / "libsentinel_fake_cuda.so"))
    for count, reason in (("kernel", "ATTRIBUTE_PAGEABLE_MEMORY_ACCESS"), ("userfaultfd", "SIGBUS"),
                          ("samples", "not a GPU's")):
        outcome = sentinel("record", *TIERS[:2], "--count", count, "--", "echo", "started", env=place, cwd=tmp_path)
        assert outcome.status == 125 and reason in outcome.err and "started" not in outcome.out
    place.update(SENTINEL_CUPTI=place["SENTINEL_CUDA"], SENTINEL_FAKE_CUPTI_FAIL="cuptiActivityEnable:35")
    outcome = sentinel("record", *TIERS[:2], "--count", "cupti", "--", "echo", "started", env=place, cwd=tmp_path)
    assert outcome.status == 125 and "NVreg_RestrictProfilingToAdminUsers" in outcome.err and not outcome.out
    outcome = sentinel("record", "--count", "cupti", "--", "echo", "started", env=place, cwd=tmp_path)
    assert outcome.status == 125 and "give --tiers fast=gpu0,slow=host" in outcome.err and not outcome.out
    place["SENTINEL_FAKE_CUDA_PAGEABLE"] = "hmm"
    outcome = sentinel("run", *TIERS, "--count", "kernel", "--", "echo", "started", env=place)
    assert outcome.status == 125 and "use it with sentinel record" in outcome.err and not outcome.out
