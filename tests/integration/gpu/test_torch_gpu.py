"""The PyTorch adaptor's way on a GPU, without one: built so that the processor's PyTorch takes the part of two
devices, of which a session manages the first, in the memory of the tests' driver's library. What an op uses that is
not there ends the program, as on a device."""
import json
import os
import pathlib
import subprocess

import pytest

import training
from compiled_once import once
from gpu_stand_ins import write_triton
from torch_libraries import torch_of

TRAINING = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "gpu_training.py"
LAUNCHES = TRAINING.with_name("gpu_launches.py")
BUILD = """
import os, sys, torch
home, made = sys.argv[1:]
sys.path.insert(0, os.path.join(home, "python"))
from sentinel import _torch
build = _torch._build_for(torch)
arguments = build.arguments
build.arguments = lambda source: ["-DSENTINEL_TORCH_FAKE_GPU", *arguments(source)]
build._compile(home, made)
"""


def device_of(interpreter, build, folder):
    """The environment in which a program trains in the fake device's memory."""
    home = build / "lib" / "sentinel"
    place = dict(SENTINEL_FRAMEWORK="none", XDG_CACHE_HOME=str(folder))

    def compile_it(path):
        made = subprocess.run([interpreter, "-c", BUILD, home, path], env={**os.environ, **place}, capture_output=True,
                              text=True)
        assert made.returncode == 0, made.stderr

    sources = [file for file in sorted((home / "source").glob("**/*")) if file.is_file()]
    ways = [home / "python" / "sentinel" / name for name in ("_attach.py", "_torch.py")]
    adaptor = once("fake_gpu.so", [BUILD, str(build), torch_of(interpreter), *ways, *sources], compile_it)
    return dict(place, ADAPTOR=str(adaptor), PLACE=str(home / "python"), SENTINEL_MODE="run",
                SENTINEL_LIBRARY=str(build / "lib" / "libsentinel.so"), SENTINEL_TIERS="fast=gpu0,slow=host",
                SENTINEL_CUDA=str(build / "lib" / "libsentinel_fake_cuda.so"), SENTINEL_FAKE_CUDA_BYTES=str(512 << 20))


@pytest.fixture(scope="module")
def plain_training(python):
    outcome = training.finish([python, TRAINING])
    assert outcome.status == 0, outcome.err
    return outcome.out


BACKWARD = ("--thread", "backward")


@pytest.mark.parametrize("flags, policy", [((), "sentinel"), (("--thread", "all"), "sentinel"), (BACKWARD, "sentinel"),
                                           (BACKWARD, "deepum"), ((*BACKWARD, "--out-of-memory-in", "6"), "sentinel")],
                         ids=["one thread", "all in a second", "backward in a second", "the same without a plan",
                              "out of memory"])
def test_training_is_the_same_in_a_share_of_the_memory(flags, policy, python, device, plain_training, tmp_path):
    """In a second thread, as autograd's is on a device, what it adds up beside its nodes' kernels is seen, too."""
    trains_the_same_in_a_share(python, device, plain_training, flags, policy, tmp_path / "summary.json")


def test_the_same_with_pytorch_1(torch1, device1, tmp_path):
    plain = training.finish([torch1, TRAINING])
    assert plain.status == 0, plain.err
    trains_the_same_in_a_share(torch1, device1, plain.out, BACKWARD, "sentinel", tmp_path / "summary.json")


CHAIN = ("--chain", "--width", "256", "--batch", "8192", "--steps", "6")


@pytest.fixture(scope="module")
def plain_chain(python):
    outcome = training.finish([python, TRAINING, *CHAIN])
    assert outcome.status == 0, outcome.err
    return outcome.out


@pytest.fixture
def chain(slow_machine, tmp_path):
    """chain(interpreter, device, *flags, **environment): the outcome of a training, whose host is described as slow."""
    def run(interpreter, device, *flags, policy="home", **environment):
        summary = tmp_path / "summary.json"
        outcome = training.finish([interpreter, TRAINING, *CHAIN, *flags], env=dict(
            device, SENTINEL_FAST="40%", SENTINEL_POLICY=policy, SENTINEL_MACHINE=str(slow_machine),
            SENTINEL_SUMMARY=str(summary), **environment))
        if outcome.status == 0:
            outcome.summary = training.read_json(summary)
        return outcome
    return run


def expect_replays(outcome, plain):
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain
    told = outcome.summary
    assert told["peak_fast_bytes"] <= told["fast_limit_bytes"] < told["peak_unlimited_bytes"] / 2
    for figure in ("replays", "discarded_bytes", "replayed_bytes"):
        assert sum(step.get(figure, 0) for step in told["steps"]) > 0, figure
    assert "no_replays" not in told and any(row["steps"] > 0 for row in told["made_again"])


@pytest.mark.parametrize("flags, policy", [((), "home"), (BACKWARD, "home"), (BACKWARD, "auto"),
                                           (("--thread", "all"), "home")],
                         ids=["one thread", "backward in a second", "the same by auto", "all in a second"])
def test_tensors_are_made_again(flags, policy, python, device, plain_chain, chain):
    """By the recipes of ops that PyTorch says are deterministic, before each op that uses them."""
    expect_replays(chain(python, device, *flags, "--deterministic", policy=policy), plain_chain)


def test_they_are_made_again_with_pytorch_1(torch1, device1, chain):
    plain = training.finish([torch1, TRAINING, *CHAIN])
    assert plain.status == 0, plain.err
    expect_replays(chain(torch1, device1, *BACKWARD, "--deterministic"), plain.out)


@pytest.mark.parametrize("fault, status", [("remake:2:FLIP", 125), ("note:2:DROP", 0), ("trial:2:FLIP", 0)])
def test_a_fault_in_a_replay_stops_training_or_changes_nothing(fault, status, python, device, plain_chain, chain):
    """In the first step that gives contents up, which is hashed."""
    outcome = chain(python, device, *BACKWARD, "--deterministic", SENTINEL_INJECT=fault)
    assert outcome.status == status, outcome.err
    assert outcome.out == plain_chain if status == 0 else plain_chain.startswith(outcome.out)


def test_nothing_is_made_again_where_pytorch_does_not_say_that_it_is_the_same(python, device, plain_chain, chain):
    outcome = chain(python, device)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_chain
    assert "torch.use_deterministic_algorithms" in outcome.summary["no_replays"]


def trains_the_same_in_a_share(interpreter, device, plain, flags, policy, summary):
    outcome = training.finish([interpreter, TRAINING, *flags], env=dict(
        device, SENTINEL_FAST="30%", SENTINEL_POLICY=policy, SENTINEL_SUMMARY=str(summary)))
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain
    assert ("refused twice" in outcome.err) == ("--out-of-memory-in" in flags)
    told = training.read_json(summary)
    assert told["peak_fast_bytes"] <= told["fast_limit_bytes"] < told["peak_unlimited_bytes"] / 3
    steady = [step for step in told["steps"] if step["phase"] == "steady"]
    assert len(steady) >= 3 and all(step["promoted_bytes"] > 0 for step in steady)


@pytest.mark.parametrize("flags", [(), ("--thread", "all")], ids=["one thread", "all in a second"])
def test_training_is_the_same_while_nothing_is_away(flags, python, device, plain_training):
    """Steps pass in which ops are not told; with too little memory for that all are."""
    for fast, wanted in (("400M", 0), ("30%", 1)):
        outcome = training.finish([python, TRAINING, *flags], env=dict(device, SENTINEL_FAST=fast))
        assert outcome.status == 0, outcome.err
        assert outcome.out == plain_training
        assert f"ops are wanted: {wanted}\n" in outcome.err


@pytest.mark.parametrize("flags", [(), BACKWARD], ids=["one thread", "backward in a second"])
def test_ops_are_told_again_in_mid_step(flags, python, device, plain_training):
    """An op that asks for too much, in a step in which ops were not told until then; it is the last step."""
    outcome = training.finish([python, TRAINING, *flags, "--out-of-memory-in", "7"],
                              env=dict(device, SENTINEL_FAST="400M"))
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_training
    assert "refused twice" in outcome.err and "ops are wanted: 1\n" in outcome.err


def test_layers_of_backward_are_seen_in_its_thread(python, device, sentinel, tmp_path):
    profile = tmp_path / "step.sentinel"
    outcome = training.finish([python, TRAINING, *BACKWARD],
                              env=dict(device, SENTINEL_MODE="record", SENTINEL_OUTPUT=str(profile)))
    assert outcome.status == 0, outcome.err
    told = json.loads(sentinel("report", profile, "layers", "--format", "json").out)["rows"]
    names = {phase: [layer["name"] for layer in told if layer["phase"] == phase] for phase in ("forward", "backward")}
    made = [name for name in names["forward"] if name.startswith("layers.")]
    assert len(made) > 10 and set(made) <= set(names["backward"])


TEACHER = {4 * 512 * 384, 4 * 1024 * 384}  # bytes of its tensors that are of no other's size


@pytest.mark.parametrize("flags", [(), BACKWARD], ids=["one thread", "backward in a second"])
def test_what_lies_on_another_device_trains_beside(flags, python, device, tmp_path):
    """Copies between the two name what is managed alone, which is there."""
    flags = [python, TRAINING, *flags, "--teacher-on"]
    plain = training.finish([*flags, "0"])
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    outcome = training.finish([*flags, "1"], env=dict(device, SENTINEL_FAST="30%", SENTINEL_SUMMARY=str(summary)))
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    assert outcome.err.count("gpu1 is not managed, gpu0 is: tensors of gpu1 stay there") == 1
    told = training.read_json(summary)
    assert told["peak_fast_bytes"] <= told["fast_limit_bytes"] < told["peak_unlimited_bytes"] / 3
    assert told["steps"][-1]["phase"] == "steady" and told["steps"][-1]["promoted_bytes"] > 0
    live, most, held, most_held, budget = (int(word) for word in outcome.err.split("on the other device: ")[1].split()[:5])
    assert live == 2 * 4 * 512 * 384  # the weights
    assert most >= live + 4 * 1024 * (512 + 384)
    assert most_held >= held >= live and most_held >= most and budget == 0


@pytest.mark.parametrize("other", [0, 1])
def test_what_lies_on_another_device_is_not_recorded(other, python, device, sentinel, tmp_path):
    profile = tmp_path / "step.sentinel"
    outcome = training.finish([python, TRAINING, "--teacher-on", str(other)],
                              env=dict(device, SENTINEL_MODE="record", SENTINEL_OUTPUT=str(profile)))
    assert outcome.status == 0, outcome.err
    told = json.loads(sentinel("report", profile, "tensors", "--format", "json").out)["rows"]
    assert TEACHER & {tensor["bytes"] for tensor in told} == (TEACHER if other == 0 else set())


OTHER_DEVICE = """
import ctypes, os, runpy, sys, torch
training = runpy.run_path(sys.argv[1])
training["attach"]()
with training["on_device"](1):
    kept = torch.ones(1000)
    try:
        torch.empty(1 << 28)
    except torch.cuda.OutOfMemoryError as error:
        print(str(error).splitlines()[0])
    os.environ["SENTINEL_FAKE_CUDA_FAIL"] = "cuMemAlloc_v2:1"
    try:
        torch.empty(10)
    except torch.cuda.OutOfMemoryError:
        print("not this")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    child = os.fork()
    if child == 0:
        del kept
        try:
            torch.empty(10)
        except RuntimeError as error:
            print(str(error).splitlines()[0], flush=True)
            os._exit(7)
        os._exit(8)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert (kept + kept).sum() == 2000
"""


def test_what_another_device_refuses(python, device):
    """Out of memory as PyTorch has it; a call by its name; a child; and what is alive to the end."""
    outcome = training.finish([python, "-u", "-c", OTHER_DEVICE, TRAINING], env=device)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [
        "CUDA out of memory. Tried to allocate 1073741824 bytes under Sentinel: gpu1 has no room for 1.00 GiB: "
        "3.91 KiB of tensors are alive there, 512 MiB are free",
        "CUDA error under Sentinel: cuMemAlloc_v2: CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA error under Sentinel: a forked child cannot use its parent's GPU", "child 7"]


THROWS = """
import os, runpy, sys, torch
training = runpy.run_path(sys.argv[1])
training["attach"]()

class Odd(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (4,), dispatch_device=True)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if len(sys.argv) == 2:
            raise ValueError("no device")
        return "no\\x1b[2J\\n\\u202edevice"

odd = Odd()
child = os.fork()
if child == 0:  # observes nothing: an op fails as it does without Sentinel
    try:
        odd + odd
    except (RuntimeError, ValueError):
        os._exit(7)
    os._exit(8)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
odd + odd
print("goes on")
"""


@pytest.mark.parametrize("what, words", [((), "a Python exception"), (("c++",), "no?[2J????device")],
                         ids=["python", "c++"])
def test_an_op_whose_tensors_cannot_be_told_does_not_run(what, words, python, device):
    """PyTorch drops what an observer throws. In a forked child nothing is observed."""
    outcome = training.finish([python, "-c", THROWS, TRAINING, *what], env=device)
    assert outcome.out == "child 7\n", outcome.err
    assert outcome.status == 125
    line, = outcome.err.splitlines()
    assert line.startswith("sentinel: training stopped: what aten::add uses cannot be told (") and line.isprintable()
    assert words in line and "tensors that have a device" in line


# ---------------------------------------------------------------- past the dispatcher

TRITON = """
class JITFunction:
    def __init__(self, fn):
        self.fn = fn

    def run(self, *args, grid, warmup, **kwargs):
        self.fn(*(arg.data_ptr() for arg in args))

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)
"""


@pytest.fixture
def triton(tmp_path):
    """triton(its launcher's text): where a stand-in lies."""
    return lambda text=TRITON: write_triton(tmp_path, "runtime/jit.py", text)


def expect_same(interpreter, device, place, way, share, tmp_path):
    """In that share of the memory; what a kernel touches that is not there ends the program."""
    plain = training.finish([interpreter, LAUNCHES, way], env=place)
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    outcome = training.finish([interpreter, LAUNCHES, way], env=dict(
        device, **place, SENTINEL_FAST=f"{100 * share:.0f}%", SENTINEL_SUMMARY=str(summary)))
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    told = training.read_json(summary)
    assert told["peak_fast_bytes"] <= told["fast_limit_bytes"] < told["peak_unlimited_bytes"] * (share + 0.05)
    assert told["steps"][-1]["phase"] == "steady" and told["steps"][-1]["promoted_bytes"] > 0
    return outcome


@pytest.mark.parametrize("way, share", [("triton", 0.3), ("extension", 0.3), ("address", 0.6)])
def test_what_launches_past_the_dispatcher_finds_what_it_uses(way, share, torch1, device1, triton, tmp_path):
    """Where nothing told of them, what these kernels use would have left: a touch of that ends the program."""
    outcome = expect_same(torch1, device1, triton(), way, share, tmp_path)
    assert outcome.err.count("a tensor's address was asked for") == (way == "address")


def test_a_triton_that_is_not_known_launches_nothing(torch1, device1, triton):
    text = TRITON.replace("def run(self, *args, grid, warmup, **kwargs)", "def run(self, *args)")
    outcome = training.finish([torch1, LAUNCHES, "triton"], env=dict(device1, **triton(text)))
    assert outcome.status == 1 and "how this Triton launches kernels is not known" in outcome.err, outcome.err


IN_A_THREAD = """
import runpy, sys, threading, torch
training = runpy.run_path(sys.argv[1])
training["attach"]()
from triton.runtime import jit
kernel = jit.JITFunction(lambda address: print("launched"))
tensor = torch.ones(1000)

def launch():
    try:
        kernel[(1,)](tensor)
    except RuntimeError as error:
        print(error)

launch()
thread = threading.Thread(target=launch)
thread.start()
thread.join()
"""


def test_a_thread_that_does_not_train_launches_nothing(torch1, device1, triton):
    outcome = training.finish([torch1, "-c", IN_A_THREAD, TRAINING], env=dict(device1, **triton()))
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[0] == "launched"
    assert "is launched in a thread that does not train" in outcome.out.splitlines()[1]


ADDRESSES = """
import runpy, sys, torch
training = runpy.run_path(sys.argv[1])
training["attach"]()
kept = [torch.ones(1 << 20) for _ in range(4)]
print(sum(one.untyped_storage().data_ptr() if hasattr(one, "untyped_storage") else one.data_ptr() for one in kept) > 0)
try:
    torch.empty(1 << 26)
except torch.cuda.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
del kept
try:
    torch.empty(1 << 28)
except torch.cuda.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
"""


def test_a_device_that_is_full_of_what_stays_says_so(python, device):
    outcome = training.finish([python, "-c", ADDRESSES, TRAINING], env=dict(device, SENTINEL_FAST="64M"))
    assert outcome.status == 0, outcome.err
    first, second = outcome.out.splitlines()[1:]
    assert ", and 16.0 MiB stay, for their addresses were asked for" in first
    assert "stay" not in second


WORKSPACE = """
import contextlib, io, runpy, sys, torch
training = runpy.run_path(sys.argv[1])
core = training["attach"]()
steps, megabytes, catches = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "op"

def shifted(value):
    try:
        torch.empty(megabytes << 20, dtype=torch.uint8)
    except RuntimeError:
        print("without a workspace")
        if not catches:
            raise
        return value + 1
    return value + 2

library = torch.library.Library("tests", "DEF")
library.define("shifted(Tensor value) -> Tensor")
library.impl("shifted", shifted, "CPU")
value = torch.zeros(1 << 20)
with contextlib.redirect_stdout(io.StringIO()):
    training["train"](steps, torch.Tensor.backward, None, None, 64, 8, "sgd")
print("ops are wanted:", core.sentinel_wants_ops())
for _ in range(2):
    try:
        print("made", float(torch.ops.tests.shifted(value)[0]), flush=True)
    except RuntimeError as error:
        print(str(error).splitlines()[0].split(":")[0], flush=True)
"""
REFUSED = "without a workspace\nCUDA out of memory. Tried to allocate 314572800 bytes under Sentinel\n"


@pytest.mark.parametrize("steps, wanted", [(0, 1), (8, 0)], ids=["ops are told", "ops are not told"])
@pytest.mark.parametrize("megabytes, catches, told, status", [
    (1, "op", "made 2.0\n" * 2, 0),
    (300, "op", "without a workspace\n", 125),
    (300, "program", REFUSED * 2, 0),
    (600, "op", "without a workspace\nmade 1.0\n" * 2, 0)])
def test_an_op_that_does_without_memory_ends_training(steps, wanted, megabytes, catches, told, status, python, device):
    """As cuDNN does, with other numbers. Where the device itself has no room PyTorch goes on alone, too."""
    outcome = training.finish([python, "-c", WORKSPACE, TRAINING, str(steps), str(megabytes), catches],
                              env=dict(device, SENTINEL_FAST="64M"))
    assert (outcome.status, outcome.out) == (status, f"ops are wanted: {wanted}\n{told}"), outcome.err
    assert ("tests::shifted was refused memory within the budget" in outcome.err) == (status != 0)


GROUPS = """
import os, runpy, sys, torch, torch.distributed as dist
training = runpy.run_path(sys.argv[1])
training["attach"]()
store = dist.HashStore()
for backend in ("nccl", "cpu:gloo,cuda:nccl", "cuda:gloo", "mpi", None):
    try:
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        print("made", backend)
    except RuntimeError as error:
        print(error)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
try:
    dist.new_group(backend="nccl")
except RuntimeError as error:
    print(error)
dist.new_group()
print("groups", flush=True)
dist.all_reduce(torch.ones(1000))
print("reduced")
"""


def test_collectives_are_refused(python, device):
    """Before a group of the device's is made; and what a group of the processor's is given."""
    outcome = training.finish([python, "-c", GROUPS, TRAINING], env=device)
    lines = outcome.out.splitlines()
    assert [line.split(" cannot be used on a GPU under Sentinel")[0] for line in lines[:-1]] == [
        *(f"init_process_group(): the backend {wrong}" for wrong in ("nccl", "cuda:nccl", "cuda:gloo", "mpi",
                                                                     "cuda:nccl")), "new_group(): the backend nccl"]
    assert lines[-1] == "groups" and outcome.status == 125
    assert "training stopped: c10d::allreduce_ is given tensors of gpu0" in outcome.err


LATE = """
import contextlib, io, runpy, sys, torch, torch.distributed as dist
training = runpy.run_path(sys.argv[1])
core = training["attach"]()
with contextlib.redirect_stdout(io.StringIO()):
    training["train"](8, torch.Tensor.backward, None, None, 64, 8, "sgd")
print("ops are wanted:", core.sentinel_wants_ops())
make = dist.init_process_group if sys.argv[2] == "python" else dist.init_process_group.__wrapped__
make("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("made", flush=True)
dist.all_reduce(torch.ones(1000))
print("reduced")
"""


@pytest.mark.parametrize("made_by, reason", [("python", "is given tensors of gpu0"),
                                             ("others", "what it is given cannot be seen now")])
def test_collectives_are_refused_while_ops_are_not_told(made_by, reason, python, device):
    """A group tells Sentinel that it is made, where Python makes it, and its ops are told from then on."""
    outcome = training.finish([python, "-c", LATE, TRAINING, made_by], env=dict(device, SENTINEL_FAST="64M"))
    assert outcome.out == "ops are wanted: 0\nmade\n" and outcome.status == 125, outcome.err
    assert "training stopped: c10d::allreduce_" in outcome.err and reason in outcome.err
