"""What computes past PyTorch's dispatcher on a GPU, or gives addresses away, in the memory of the tests' driver
(test_torch_gpu.py): extensions that are compiled against PyTorch, Triton's compiled kernels, DLPack, collectives of one
process, streams that are named."""
import os
import subprocess

import pytest

import training
from gpu_stand_ins import write_triton
from test_torch_gpu import TRAINING, expect_same
from torch_libraries import compiled

# ---------------------------------------------------------------- extensions


@pytest.fixture(scope="module")
def extension(python, tmp_path_factory):
    """A folder in which there is gpu_extension."""
    folder = tmp_path_factory.mktemp("extension")
    compiled(python, "gpu_extension.cpp", folder / "gpu_extension.so", extension=True)
    return dict(PYTHONPATH=str(folder))


@pytest.mark.parametrize("way, share", [("function", 0.3), ("inner", 0.3), ("static", 0.3), ("method", 0.6)])
def test_an_extensions_functions_find_what_they_use(way, share, python, device, extension, tmp_path):
    """Its module's, those of a module within it, a class's; and what an object of it keeps stays."""
    outcome = expect_same(python, device, extension, way, share, tmp_path)
    assert outcome.err.count("a tensor's address was asked for") == (way == "method")


IMPORTED = """
import runpy, sys, threading, torch
launches = runpy.run_path(sys.argv[1])["attach"].__globals__
launches["attach"]()
import gpu_extension, _posixshmem
told = lambda function: hasattr(function, "__wrapped__")
print(told(gpu_extension.multiply), told(gpu_extension.Multiplier.keep), told(_posixshmem.shm_open))
failed = []

def call():
    print(gpu_extension.name())
    try:
        gpu_extension.multiply(torch.ones(4), torch.ones(4), torch.ones(4))
    except RuntimeError as error:
        print(error)

thread = threading.Thread(target=call)
thread.start()
thread.join()
"""


def test_functions_of_what_is_linked_with_pytorch_are_told(python, device, extension):
    """And of nothing else that is imported. What is given no tensors may be called in any thread."""
    outcome = training.finish([python, "-c", IMPORTED, TRAINING], env=dict(device, **extension))
    assert outcome.status == 0, outcome.err
    told, name, refused = outcome.out.splitlines()
    assert told == "True True False" and name == "gpu_extension"
    assert refused.startswith("gpu_extension::multiply is launched in a thread that does not train")


# ---------------------------------------------------------------- Triton

# As Triton's own of 2.2 to 3.x: a kernel that is compiled takes its grid, then its arguments and a stream.
COMPILER = """
class CompiledKernel:
    name = "multiply"

    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        def runner(*args, stream=None):
            self.fn(*(arg.data_ptr() for arg in args))
        return runner
"""


@pytest.fixture
def triton(tmp_path):
    """Where a stand-in for it lies."""
    return write_triton(tmp_path, "compiler/compiler.py", COMPILER)


def test_a_compiled_kernel_of_triton_finds_what_it_uses(torch1, device1, triton, tmp_path):
    """On the thread's stream, and on one that is named. PyTorch 2 asks more of Triton than the stand-in has."""
    outcome = expect_same(torch1, device1, triton, "compiled", 0.3, tmp_path)
    assert "address was asked for" not in outcome.err


# ---------------------------------------------------------------- addresses

GIVEN = """
import ctypes, json, runpy, sys, numpy, torch
training = runpy.run_path(sys.argv[1])
training["attach"]()
from torch.utils import dlpack

class OnDevice(torch.Tensor):
    is_cuda = True  # the fake device's tensors are the processor's

class Capsule:
    def __init__(self, capsule):
        self.capsule = capsule
    def __dlpack__(self, **words):
        return self.capsule
    def __dlpack_device__(self):
        return 1, 0

def at(address):
    return numpy.ctypeslib.as_array((ctypes.c_float * (1 << 20)).from_address(address))

WAYS = {"data_ptr": lambda tensor: at(tensor.data_ptr()),
        "const_data_ptr": lambda tensor: at(tensor.const_data_ptr()),
        "storage": lambda tensor: at(tensor.untyped_storage().data_ptr()),
        "__cuda_array_interface__": lambda tensor: at(tensor.as_subclass(OnDevice).__cuda_array_interface__["data"][0]),
        "to_dlpack": lambda tensor: numpy.from_dlpack(Capsule(dlpack.to_dlpack(tensor))),
        "__dlpack__": lambda tensor: numpy.from_dlpack(Capsule(tensor.__dlpack__())),
        "from_dlpack": numpy.from_dlpack}
kept, other = torch.full((1 << 20,), 3.0), torch.full((1 << 20,), 4.0)
array = WAYS[sys.argv[2]](kept)
again = WAYS[sys.argv[2]](other)
more = [torch.zeros(1 << 20) for _ in range(20)]  # more than the budget holds
print(float(array.sum(dtype=numpy.float64)) == 3 << 20, float(again.sum(dtype=numpy.float64)) == 4 << 20)
try:
    torch.empty(1 << 26)
except torch.cuda.OutOfMemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("way", ["data_ptr", "const_data_ptr", "storage", "__cuda_array_interface__", "to_dlpack",
                                 "__dlpack__", "from_dlpack"])
def test_what_gave_its_address_away_stays(way, python, device):
    """One line says so. What did not may leave."""
    if way == "const_data_ptr" and subprocess.run(
            [python, "-c", "import torch; torch.Tensor.const_data_ptr"], capture_output=True,
            env=dict(os.environ, SENTINEL_FRAMEWORK="none")).returncode:
        pytest.skip("this PyTorch has no const_data_ptr()")
    outcome = training.finish([python, "-c", GIVEN, TRAINING, way], env=dict(device, SENTINEL_FAST="64M"))
    assert outcome.status == 0, outcome.err
    read, refused = outcome.out.splitlines()[:2]
    assert read == "True True"
    assert ", and 8.00 MiB stay, for their addresses were asked for" in refused
    assert outcome.err.count("a tensor's address was asked for") == 1


EXCHANGED = """
import runpy, sys, torch
runpy.run_path(sys.argv[1])["attach"]()
print(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), hasattr(torch.Tensor, "__dlpack__"))
"""


def test_no_address_is_given_where_python_is_not_asked(python, device):
    """DLPack's table of C functions has no tensor's address pass by Python."""
    outcome = training.finish([python, "-c", EXCHANGED, TRAINING], env=device)
    assert outcome.out == "False True\n", outcome.err


# ---------------------------------------------------------------- collectives of one process

# A PyTorch with CUDA has these; here they tell that they were called.
BROADCAST = """
import runpy, sys, torch
NAMES = ("_broadcast", "_broadcast_coalesced", "_broadcast_out", "_nccl_all_reduce", "_nccl_reduce", "_nccl_broadcast",
         "_nccl_all_gather", "_nccl_reduce_scatter")
for name in NAMES:
    setattr(torch._C, name, lambda *args: print("launched"))
runpy.run_path(sys.argv[1])["attach"]()
from torch.cuda import nccl
from torch.nn.parallel import comm, replicate
tensor, net = torch.ones(4), torch.nn.Linear(2, 2)
for call in (lambda: comm.broadcast(tensor, [0, 1]), lambda: comm.broadcast_coalesced([tensor], [0, 1]),
             lambda: replicate(net, [0, 1], detach=True),  # as DataParallel does
             lambda: nccl.all_reduce([tensor], [tensor]), lambda: nccl.broadcast([tensor])):
    try:
        call()
        print("made")
    except RuntimeError as error:
        print(error)
for name in NAMES:
    try:
        getattr(torch._C, name)()
    except RuntimeError as error:
        print(name in str(error))
"""


def test_collectives_of_one_process_are_refused(python, device):
    """DataParallel's, and torch.cuda.nccl's."""
    outcome = training.finish([python, "-c", BROADCAST, TRAINING], env=device)
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    reason = (" cannot be used on a GPU under Sentinel: a collective reads and writes tensors where no op is seen, and they "
              "may have left the device")
    assert lines[:5] == [f"torch._C.{name}(){reason}" for name in (
        "_broadcast", "_broadcast_coalesced", "_broadcast_coalesced", "_nccl_all_reduce", "_nccl_broadcast")]
    assert lines[5:] == ["True"] * 8


# ---------------------------------------------------------------- streams that are named

# A driver that tells how often an event was recorded on the stream that the program names.
RECORDS = """
#include <atomic>
static std::atomic<int> recorded;
extern "C" int cuEventRecord(void*, void* stream) { return recorded += stream == (void*)7, 0; }
extern "C" int recorded_on_seven() { return recorded; }
"""
NAMED = """
import ctypes, os, runpy, sys, torch
attach = runpy.run_path(sys.argv[1])["attach"]
attach()
driver, adaptor = ctypes.CDLL(os.environ["SENTINEL_CUDA"]), ctypes.CDLL(os.environ["ADAPTOR"])
adaptor.sentinel_torch_gpu_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
for named in (False, True):
    tensor = torch.ones(1 << 20)
    if named and sys.argv[2] == "launch":  # as Triton's compiled kernels are told
        with attach.__globals__["launches"].op("kernel", [tensor], 7):
            pass
    elif named:  # as c10::cuda's record_stream() does of the pluggable allocator
        adaptor.sentinel_torch_gpu_record_stream(torch._C._TensorBase.data_ptr(tensor), 7)
    before = driver.recorded_on_seven()
    del tensor
    more = [torch.ones(1 << 20) for _ in range(20)]  # of which some have its memory
    print(driver.recorded_on_seven() > before)
"""


@pytest.mark.parametrize("way", ["record_stream", "launch"])
def test_memory_is_anothers_behind_the_streams_that_were_named(way, python, device, build, tmp_path):
    from test_gpu_programs import over_the_tests_driver
    library = over_the_tests_driver(build, tmp_path, RECORDS)
    outcome = training.finish([python, "-c", NAMED, TRAINING, way],
                              env=dict(device, SENTINEL_CUDA=str(library), SENTINEL_FAST="64M"))
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["False", "True"]
