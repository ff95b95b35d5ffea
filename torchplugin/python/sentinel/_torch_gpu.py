"""What PyTorch needs on a GPU under Sentinel: its allocator and figures, optimizers that fit into a budget, and what goes
past the dispatcher. There an op names what it uses, and what it uses is brought before its kernels are launched. What
launches kernels otherwise is told as an op, or what it uses stays, or it is refused: no number is computed of memory
that has left."""
import contextlib
import ctypes
import functools
import importlib.machinery
import inspect
import mmap
import os
import sys
import threading
import types

try:
    from . import _attach, _torch_groups
except ImportError:
    import _attach
    import _torch_groups


def _say(text):
    if not os.environ.get("SENTINEL_QUIET"):
        sys.stderr.write(f"sentinel: {text}\n")


def manage(torch, core, adaptor):
    """Called once, when the session has begun."""
    _plug_in(torch, core, adaptor)
    _keep_cudnn_from_searching(torch)
    _refuse_graphs(torch)
    _refuse_collectives(torch, adaptor)
    split_optimizers(torch, core)
    tell_launches(torch, adaptor)


def check(torch):
    if not torch.version.cuda:
        _attach.stop(f"PyTorch {torch.__version__} is built without CUDA: --tiers fast=gpu0 needs one with it")
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 1):
        _attach.stop(f"on a GPU Sentinel needs PyTorch 2.1 or later; this is {torch.__version__}")
    try:
        ctypes.CDLL("libc10_cuda.so", mode=os.RTLD_LAZY | os.RTLD_NOLOAD)["_ZNK3c104cuda10CUDAStream6streamEv"]
    except (OSError, AttributeError) as error:
        _attach.stop(f"the streams of PyTorch {torch.__version__} cannot be told apart ({error}); take another version")


_POOLS = ("all", "large_pool", "small_pool")
_IN_POOLS = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
             "inactive_split_bytes", "requested_bytes")


def _statistics(live=0, most_live=0, held=0, most_held=0):
    """All that PyTorch's own allocator tells of a device, memory_summary() included; what Sentinel does not have,
    or does not tell, is 0."""
    def row(current=0, peak=0):
        return {"current": current, "peak": peak, "allocated": 0, "freed": 0}

    told = {name: {pool: row() for pool in _POOLS} for name in _IN_POOLS}
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        told[name]["all"] = row(live, most_live)
    told["reserved_bytes"]["all"] = row(held, most_held)
    counts = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")
    return {**told, "oversize_allocations": row(), "oversize_segments": row(), "max_split_size": -1,
            **dict.fromkeys(counts, 0)}


def _plug_in(torch, core, adaptor):
    """The device's memory is Sentinel's from the first tensor on. PyTorch has no statistics of an allocator
    that is plugged in: what it is asked for is answered here. Of another device, whose memory is the driver's, too:
    what is alive there, and what has not gone back to the driver yet."""
    memory = torch.cuda.memory
    allocator = memory.CUDAPluggableAllocator(adaptor._name, "sentinel_torch_gpu_malloc", "sentinel_torch_gpu_free")
    if not hasattr(allocator.allocator(), "set_record_stream_fn"):
        _attach.stop(f"PyTorch {torch.__version__} tells no allocator of record_stream(); take another version")
    used_on = ctypes.cast(adaptor.sentinel_torch_gpu_record_stream, ctypes.c_void_p).value
    allocator.allocator().set_record_stream_fn(used_on)
    memory.change_current_allocator(allocator)

    def nested(device=None, reset=False):
        if not memory.is_initialized():
            return {}
        figures = (ctypes.c_size_t * 5)()
        core.sentinel_gpu_memory(memory._get_device_index(device, optional=True), figures, reset)
        return _statistics(*figures[:4])

    def reset_peaks(device=None):
        nested(device, reset=True)

    memory.memory_stats_as_nested_dict = torch.cuda.memory_stats_as_nested_dict = nested
    memory.reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats = reset_peaks


def _keep_cudnn_from_searching(torch):
    """The search asks how large a block PyTorch's own allocator has. One that is plugged in has no answer, and
    every convolution would fail."""
    told = False

    def stays_off(wanted):
        nonlocal told
        if wanted and not told:
            told = True
            _say("torch.backends.cudnn.benchmark stays off: the search asks for PyTorch's own allocator")

    torch._C._set_cudnn_benchmark = stays_off  # for set_flags() and flags(); the property has it already
    vars(type(torch.backends.cudnn))["benchmark"].setter = stays_off


def _refuse_graphs(torch):
    """What is captured moves no tensor when it is replayed."""
    def capture_begin(self, *args, **kwargs):
        raise RuntimeError("CUDA graphs cannot be used on a GPU under Sentinel: a replay would use tensors that have "
                           "left the device")

    torch.cuda.CUDAGraph.capture_begin = capture_begin


# ---------------------------------------------------------------- collectives

_NCCL = ("_nccl_all_reduce", "_nccl_reduce", "_nccl_broadcast", "_nccl_all_gather", "_nccl_reduce_scatter",
         "_broadcast_coalesced", "_broadcast", "_broadcast_out")


def _refuse_collectives(torch, adaptor):
    """Their kernels run in threads and on streams that no op names. A group of gloo's alone may be made, for tensors of
    the processor; the adaptor ends training where an op of `c10d` is given the device's."""
    def refuse(what):
        def refused(*args, **kwargs):
            raise RuntimeError(f"{what} cannot be used on a GPU under Sentinel: a collective reads and writes tensors "
                               "where no op is seen, and they may have left the device")
        return refused

    for name in _NCCL:  # torch.cuda.nccl, DataParallel
        if hasattr(torch._C, name):
            setattr(torch._C, name, refuse(f"torch._C.{name}()"))
    _attach.after("torch.distributed.distributed_c10d", functools.partial(_refuse_groups, torch, adaptor))


def _refuse_groups(torch, adaptor, c10d):
    known = getattr(getattr(c10d, "Backend", None), "backend_capability", {})

    def on_device(backend):
        """The part of a backend's name that computes on a GPU; None: none does."""
        for part in str(backend or "cuda:nccl").lower().split(","):
            device, _, name = part.rpartition(":")
            alone = name == "gloo" and device != "cuda"
            if not alone and (device == "cuda" or not device and "cuda" in known.get(name, ["cuda"])):
                return part
        return None

    def checked(make, names_default):
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(*args, **kwargs):
            given = signature.bind(*args, **kwargs).arguments.get("backend")
            wrong = None if given is None and not names_default else on_device(given)
            if wrong:
                raise RuntimeError(
                    f"{make.__name__}(): the backend {wrong} cannot be used on a GPU under Sentinel: a collective reads "
                    "and writes tensors where no op is seen, and they may have left the device. Give backend=\"gloo\" and "
                    "tensors of the processor, or train without Sentinel")
            adaptor.sentinel_torch_tell_always()
            return make(*args, **kwargs)
        return made

    for name, names_default in (("init_process_group", True), ("new_group", False)):
        made = checked(getattr(c10d, name), names_default)
        setattr(c10d, name, made)
        with contextlib.suppress(AttributeError, KeyError):  # not there yet: it will import this one
            package = sys.modules["torch.distributed"]
            getattr(package, name)
            setattr(package, name, made)


# ---------------------------------------------------------------- optimizers

_SHARE = 8  # of the budget: what the tensors of one group may be, beside what is made of them


def split_optimizers(torch, core):
    """Into groups of at most an eighth of the budget: all that an op names has to be there at once."""
    core.sentinel_gpu_budget.restype = ctypes.c_size_t
    limit = 0

    def most():
        """It grows with the budget in large steps, for a step that names other groups is another step."""
        nonlocal limit
        share = core.sentinel_gpu_budget() // _SHARE
        if share >= 4 * limit:
            limit = share
        return max(limit, 1)

    _torch_groups.split(torch, most)
    if not _torch_groups.is_known(torch):
        _refuse_groups_of_tensors(torch, sys.modules["torch.optim.optimizer"])


def _refuse_groups_of_tensors(torch, optimizer):
    """In this PyTorch nobody can be asked for smaller groups."""
    add = optimizer.Optimizer.add_param_group
    by_default = int(torch.__version__.split(".")[0]) >= 2  # what is not said is foreach on a GPU

    @functools.wraps(add)
    def added(self, param_group):
        add(self, param_group)
        group = self.param_groups[-1]
        foreach = group.get("foreach", False)
        if group.get("fused") or foreach or (foreach is None and by_default):
            raise RuntimeError(
                f"{type(self).__name__}: how PyTorch {torch.__version__} groups tensors is not known, so Sentinel cannot "
                "keep its foreach and fused optimizers within a budget; give foreach=False and fused=False")

    optimizer.Optimizer.add_param_group = added


# ---------------------------------------------------------------- past the dispatcher

# These compare addresses, and give them to nobody but by that property.
_COMPARING = ("torch.nn.", "torch.serialization", "torch._tensor", "torch.autograd.graph", "torch.cuda.graphs",
              "torch.optim.", "safetensors.", "transformers.pytorch_utils", "transformers.modeling_utils",
              "accelerate.utils.")
_GIVING = "__cuda_array_interface__"
_TOLD_FUNCTIONS = ("_cuda_jiterator_compile_and_launch_kernel",)
_CAPSULES = ("_to_dlpack", "_to_dlpack_versioned")
_EXCHANGE = "__dlpack_c_exchange_api__"  # DLPack's table of C functions: addresses are given where no Python is asked


def _compares(frame):
    if frame.f_globals.get("__name__") == "torch.storage":  # a typed storage asks its untyped one
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").startswith(_COMPARING) and frame.f_code.co_name != _GIVING


class Launches:
    """Kernels that no op of the dispatcher launches. One that names tensors (Triton's, a function of a C++ extension)
    becomes an op: what it names is brought before it is launched, and a plan knows it. Of a tensor whose address is
    given away (data_ptr(), DLPack) nobody knows when it is used: it stays from then on."""

    def __init__(self, torch, adaptor):
        self._torch, self._adaptor = torch, adaptor
        self._device = "cuda" if torch.version.cuda else "cpu"  # which takes the part of one in tests
        self._storage = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage
        self._address = torch.UntypedStorage.data_ptr
        self._names, self._told, self._here = {}, False, threading.local()
        adaptor.sentinel_torch_launch_begin.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p),
                                                        ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t]
        adaptor.sentinel_torch_gpu_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        adaptor.sentinel_torch_pin.argtypes = [ctypes.c_void_p]

    def _storages(self, values, found):
        """Of all tensors in there: bytes by address."""
        for value in values:
            if isinstance(value, self._torch.Tensor) and value.device.type == self._device:
                storage = self._storage(value)
                if address := self._address(storage):
                    found[address] = storage.nbytes()
            elif isinstance(value, (list, tuple)):
                self._storages(value, found)
            elif isinstance(value, dict):
                self._storages(value.values(), found)
            elif isinstance(getattr(value, "base", None), self._torch.Tensor):  # Triton's wrappers and descriptors
                self._storages([value.base], found)
        return found

    @contextlib.contextmanager
    def op(self, name, values, stream=None):
        """Around what launches. Python's own stream of this thread, unless another is named."""
        found = self._storages(values, {})
        kept = self._names.setdefault(name, name.encode())  # for good: the session knows ops by address
        count = len(found)
        addresses, sizes = (ctypes.c_void_p * count)(*found), (ctypes.c_size_t * count)(*found.values())
        if self._adaptor.sentinel_torch_launch_begin(kept, addresses, sizes, count) != 0:
            raise RuntimeError(f"{name} is launched in a thread that does not train: under Sentinel its tensors may leave "
                               "the device meanwhile; launch it in the thread that trains")
        before, self._here.launches = getattr(self._here, "launches", False), True
        try:
            if stream is not None:
                for address in found:
                    self._adaptor.sentinel_torch_gpu_record_stream(address, stream)
            yield
        finally:
            self._here.launches = before
            self._adaptor.sentinel_torch_launch_end()

    def pin(self, tensor):
        """Within a launch it is there already, and nobody keeps the address."""
        if getattr(self._here, "launches", False):
            return
        storage = self._storage(tensor) if isinstance(tensor, self._torch.Tensor) else tensor
        self._stay([self._address(storage)])

    def _stay(self, addresses):
        pinned = [self._adaptor.sentinel_torch_pin(address) for address in addresses]
        if any(pinned) and not self._told:
            self._told = True
            _say("a tensor's address was asked for, which tells nobody when it is used: the tensor stays on the device "
                 "until it is freed, and so does each whose address is asked for from now on")

    def pins(self, function):
        """The same function, which gives an address away."""
        @functools.wraps(function)
        def asked(tensor, *args, **kwargs):
            answer = function(tensor, *args, **kwargs)
            if not _compares(sys._getframe(1)):
                self.pin(tensor)
            return answer
        return asked

    def told(self, name, function, keeps=False):
        """The same function, which launches kernels with the tensors that it is given, and may keep them."""
        @functools.wraps(function)
        def launched(*args, **kwargs):
            given = self._storages([args, kwargs], {})
            if not given:
                return function(*args, **kwargs)
            if keeps:
                self._stay(given)
            with self.op(name, [args, kwargs]):
                return function(*args, **kwargs)
        return launched


def tell_launches(torch, adaptor):
    launches = Launches(torch, adaptor)
    for name in ("data_ptr", "const_data_ptr"):
        if hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, launches.pins(getattr(torch.Tensor, name)))
    torch.UntypedStorage.data_ptr = launches.pins(torch.UntypedStorage.data_ptr)
    if hasattr(torch.Tensor, "__dlpack__"):
        torch.Tensor.__dlpack__ = launches.pins(torch.Tensor.__dlpack__)
    if _EXCHANGE in vars(torch.Tensor):  # who looks for it and finds none calls __dlpack__
        delattr(torch.Tensor, _EXCHANGE)
    for module in (torch._C, torch, sys.modules.get("torch.utils.dlpack")):
        for name in (*_CAPSULES, "to_dlpack"):
            if hasattr(module, name):
                setattr(module, name, launches.pins(getattr(module, name)))
    for name in _TOLD_FUNCTIONS:
        if hasattr(torch._C, name):
            setattr(torch._C, name, launches.told(name, getattr(torch._C, name)))
    _attach.after("triton.runtime.jit", functools.partial(_tell_triton, launches))
    _attach.after("triton.compiler.compiler", functools.partial(_tell_compiled, launches))
    _tell_extensions(launches)
    return launches


def _tell_triton(launches, jit):
    run = getattr(jit.JITFunction, "run", None)
    parameters = inspect.signature(run).parameters if callable(run) else {}
    if "grid" not in parameters:
        def refused(self):
            raise RuntimeError("how this Triton launches kernels is not known: under Sentinel their tensors may have left "
                               "the GPU. Take Triton 2.2 or later")
        jit.JITFunction.run = property(refused, lambda self, launcher: None)
        return

    @functools.wraps(run)
    def launched(self, *args, **kwargs):
        if kwargs.get("warmup"):
            return run(self, *args, **kwargs)
        name = getattr(getattr(self, "fn", None), "__name__", "kernel")
        with launches.op(f"triton::{name}", [args, kwargs]):
            return run(self, *args, **kwargs)

    jit.JITFunction.run = launched


def _tell_compiled(launches, compiler):
    """`kernel = function.warmup(...); kernel[grid](...)`."""
    kernel = getattr(compiler, "CompiledKernel", None)
    get = getattr(kernel, "__getitem__", None)
    if get is None:
        return

    @functools.wraps(get)
    def item(self, grid):
        run = get(self, grid)

        def runner(*args, stream=None, **kwargs):
            with launches.op(f"triton::{getattr(self, 'name', 'kernel')}", [args, kwargs], stream):
                return run(*args, stream=stream, **kwargs)
        return runner

    kernel.__getitem__ = item


def _tell_extensions(launches):
    """Functions of C++ extensions that are linked with PyTorch take tensors past the dispatcher."""
    load = importlib.machinery.ExtensionFileLoader.exec_module

    @functools.wraps(load)
    def exec_module(self, module):
        load(self, module)
        if not module.__name__.startswith("torch.") and _is_linked_with_torch(self.path):
            tell_extension(launches, module)

    importlib.machinery.ExtensionFileLoader.exec_module = exec_module


def _is_linked_with_torch(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"libc10.so") >= 0


def tell_extension(launches, module):
    """Its functions, those of modules within it, and its classes' methods. An object may keep what a method is given:
    that stays."""
    for name, value in list(vars(module).items()):
        full = f"{module.__name__}::{name}"
        if isinstance(value, types.BuiltinFunctionType):
            setattr(module, name, launches.told(full, value))
        elif isinstance(value, types.ModuleType) and value.__name__.startswith(f"{module.__name__}."):
            tell_extension(launches, value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            _tell_class(launches, full, value)


def _tell_class(launches, full, made):
    for name, value in list(vars(made).items()):
        if type(value).__name__ == "instancemethod":  # pybind11's
            setattr(made, name, launches.told(f"{full}.{name}", value, keeps=True))
        elif isinstance(value, staticmethod):
            setattr(made, name, staticmethod(launches.told(f"{full}.{name}", value.__func__)))
