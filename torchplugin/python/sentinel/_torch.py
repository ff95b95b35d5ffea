"""Attaches Sentinel to PyTorch: loads the adaptor, finds layers and steps through public hooks. As a
script: builds the adaptor for this interpreter's PyTorch into the home given."""
import ctypes
import os
import sys
import weakref

try:
    from . import _attach
except ImportError:
    import _attach


def _build_for(torch):
    """One file per PyTorch build, interpreter-independent: the adaptor uses C++ interfaces only."""
    base = os.path.dirname(torch.__file__)
    abi = int(torch.compiled_with_cxx11_abi())
    includes = [os.path.join(base, "include"), os.path.join(base, "include/torch/csrc/api/include")]
    libraries = os.path.join(base, "lib")
    standard = "c++17" if int(torch.__version__.split(".")[0]) < 2 else "c++20"

    def arguments(source):
        return [f"-std={standard}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                *("-isystem" + path for path in includes if os.path.isdir(path)),
                os.path.join(source, "torch.cpp"), "-L" + libraries, "-Wl,-rpath," + libraries,
                "-lc10", "-ltorch_cpu"]

    return _attach.Build(f"PyTorch {torch.__version__}", f"torch-{torch.__version__.split('+')[0]}",
                         f"{torch.__version__} {torch.__file__} {bool(abi)}", ["torch.cpp"], arguments)


def attach(torch):
    """Called once, when torch has been imported. Ends the process where the session cannot start."""
    if not _attach.claim("torch"):
        return
    # What the program's children load is their own decision: only this process is attached here.
    try:
        core = _attach.load_library()
        adaptor = ctypes.CDLL(_build_for(torch).find(core, os.environ["SENTINEL_HOME"]).path)
    except (OSError, RuntimeError, KeyError) as error:
        _attach.stop(f"could not load the PyTorch adaptor: {error}")
    on_gpu = "fast=gpu" in os.environ.get("SENTINEL_TIERS", "")
    if on_gpu:
        _check_gpu(torch)
    watched = _attach.start(core, lambda: adaptor.sentinel_torch_attach(on_gpu))
    if on_gpu:
        _manage_gpu(torch, core, adaptor)
        _keep_cudnn_from_searching(torch)
        _refuse_graphs(torch)
    if not watched:  # an allocator and nothing else
        return
    hooks = [_find_layers(torch, adaptor), _find_steps(adaptor)]
    _refuse_compile(torch, core, hooks)


def _check_gpu(torch):
    if not torch.version.cuda:
        _attach.stop(f"PyTorch {torch.__version__} is built without CUDA: --tiers fast=gpu0 needs one with it")
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 1):
        _attach.stop(f"on a GPU Sentinel needs PyTorch 2.1 or later; this is {torch.__version__}")
    try:
        ctypes.CDLL("libc10_cuda.so", mode=os.RTLD_LAZY | os.RTLD_NOLOAD)["_ZNK3c104cuda10CUDAStream6streamEv"]
    except (OSError, AttributeError) as error:
        _attach.stop(f"the streams of PyTorch {torch.__version__} cannot be told apart: {error}")


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


def _manage_gpu(torch, core, adaptor):
    """The device's memory is Sentinel's from the first tensor on. PyTorch has no statistics of an allocator
    that is plugged in: what it is asked for is answered here. Of another device, whose memory is the driver's, too:
    what is alive there, and what has not gone back to the driver yet."""
    memory = torch.cuda.memory
    memory.change_current_allocator(memory.CUDAPluggableAllocator(
        adaptor._name, "sentinel_torch_gpu_malloc", "sentinel_torch_gpu_free"))

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
        if wanted and not told and not os.environ.get("SENTINEL_QUIET"):
            told = True
            sys.stderr.write("sentinel: torch.backends.cudnn.benchmark stays off: the search asks for PyTorch's own "
                             "allocator\n")

    torch._C._set_cudnn_benchmark = stays_off  # for set_flags() and flags(); the property has it already
    vars(type(torch.backends.cudnn))["benchmark"].setter = stays_off


def _refuse_graphs(torch):
    """What is captured moves no tensor when it is replayed."""
    def capture_begin(self, *args, **kwargs):
        raise RuntimeError("CUDA graphs cannot be used on a GPU under Sentinel: a replay would use tensors that have "
                           "left the device")

    torch.cuda.CUDAGraph.capture_begin = capture_begin


def _find_layers(torch, adaptor):
    """A layer begins at a module that owns a weight of two or more dimensions, and lasts until the
    next begins. Its name is the module's path in the model that was called."""
    names = weakref.WeakKeyDictionary()
    heavy = weakref.WeakKeyDictionary()
    adaptor.sentinel_torch_layer.argtypes = [ctypes.c_char_p]
    adaptor.sentinel_torch_model.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    known = False

    def owns_weight(module):
        return any(p is not None and p.dim() >= 2 for p in module.parameters(recurse=False))

    def before(module, inputs):
        nonlocal known
        if not known:  # the first module called is the model, its input's first dimension the batch
            known = True
            shape = getattr(inputs[0], "shape", None) if inputs else None
            adaptor.sentinel_torch_model(type(module).__name__.encode(), shape[0] if shape else 0)
        if module not in names:
            prefix = type(module).__name__
            for path, child in module.named_modules():
                names.setdefault(child, f"{path or prefix}")
        if module not in heavy:
            heavy[module] = owns_weight(module)
        if heavy[module]:
            adaptor.sentinel_torch_layer(names[module].encode())

    return torch.nn.modules.module.register_module_forward_pre_hook(before)


def _find_steps(adaptor):
    steps = _attach.Steps(adaptor.sentinel_torch_step)
    optim = sys.modules["torch.optim.optimizer"]  # the package hides the module behind its class
    if hasattr(optim, "register_optimizer_step_post_hook"):
        return optim.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: steps.updated(optimizer))
    construct = optim.Optimizer._hook_for_profile

    def hooked(self):
        construct(self)
        step = type(self).step
        if getattr(step, "_sentinel", False):
            return

        def stepped(self, *args, **kwargs):
            result = step(self, *args, **kwargs)
            steps.updated(self)
            return result

        stepped._sentinel = True
        stepped.hooked = True
        stepped.__wrapped__ = step
        type(self).step = stepped

    optim.Optimizer._hook_for_profile = hooked


def _refuse_compile(torch, core, hooks):
    """torch.compile takes memory where no plan sees it. The hooks go, or it would compile them too."""
    if not hasattr(torch, "compile"):
        return
    compile_ = torch.compile

    def noticed(*args, **kwargs):
        core.sentinel_unsupported(b"torch.compile")
        while hooks:
            hooks.pop().remove()
        return compile_(*args, **kwargs)

    torch.compile = noticed


if __name__ == "__main__":
    import torch
    _build_for(torch).build(sys.argv[1], os.path.join(sys.argv[1], "adaptors"))
else:
    _attach.after("torch", attach)
