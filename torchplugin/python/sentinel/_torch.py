"""Attaches Sentinel to PyTorch: loads the adaptor, finds layers and steps through public hooks. As a
script: builds the adaptor for this interpreter's PyTorch into the home given."""
import ctypes
import functools
import os
import sys
import weakref

try:
    from . import _attach, _torch_compile, _torch_gpu
except ImportError:
    import _attach
    import _torch_compile
    import _torch_gpu


# The unit that is compiled, and its parts: each belongs to the name of the result.
_SOURCES = ["torch.cpp", "torch_compiled.h", "torch_device.h", "torch_frames.h", "torch_observers.h",
            "torch_operands.h", "torch_steps.h"]


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
                os.path.join(source, _SOURCES[0]), "-L" + libraries, "-Wl,-rpath," + libraries,
                "-lc10", "-ltorch_cpu"]

    return _attach.Build(f"PyTorch {torch.__version__}", f"torch-{torch.__version__.split('+')[0]}",
                         f"{torch.__version__} {torch.__file__} {bool(abi)}", _SOURCES, arguments)


def attach(torch):
    """Called once, when torch has been imported. Ends the process where the session cannot start."""
    if not _attach.claim("torch"):
        return
    # What the program's children load is their own decision: only this process is attached here.
    try:
        core = _attach.load_library()
        library = _build_for(torch).find(core, os.environ["SENTINEL_HOME"]).path
        adaptor = ctypes.CDLL(library)
    except (OSError, RuntimeError, KeyError) as error:
        _attach.stop_without_adaptor("PyTorch", error)
    on_gpu = "fast=gpu" in os.environ.get("SENTINEL_TIERS", "")
    if on_gpu:
        _torch_gpu.check(torch)
    watched = _attach.start(core, lambda: adaptor.sentinel_torch_attach(on_gpu))
    if on_gpu:
        _torch_gpu.manage(torch, core, adaptor)
    if not watched:  # an allocator and nothing else
        return
    layers, steps = _find_layers(torch, adaptor), _find_steps(adaptor)
    if on_gpu or not _torch_compile.can_manage(torch):
        _torch_compile.refuse(torch, core, [layers, steps])
    else:
        _torch_compile.manage(torch, core, adaptor, library, layers)


def _find_layers(torch, adaptor):
    """A layer begins at a module that owns a weight of two or more dimensions, and lasts until the
    next begins. Its name is the module's path in the model that was called."""
    names = weakref.WeakKeyDictionary()
    heavy = weakref.WeakKeyDictionary()
    adaptor.sentinel_torch_layer.argtypes = [ctypes.c_char_p]
    adaptor.sentinel_torch_model.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    known = False
    is_lazy = torch.nn.parameter.is_lazy  # has no shape until its module was called
    is_compiling = _torch_compile.is_compiling_of(torch)

    def owns_weight(module):
        return any(not is_lazy(p) and p.dim() >= 2 for p in module.parameters(recurse=False))

    def before(module, inputs):
        nonlocal known
        if is_compiling():
            return
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


def _ended_by(steps, adaptor):
    """The hook after an optimizer's step. Dynamo traces it with a step that is compiled: it must put nothing there."""
    is_compiling = _torch_compile.is_compiling_of(sys.modules["torch"])

    @_torch_compile.constant
    def compiled():
        adaptor.sentinel_torch_optimizer_compiled()
        return True

    def ended(optimizer, args, kwargs):
        if is_compiling():
            compiled()
            return
        steps.updated(optimizer)

    return ended


def _find_steps(adaptor):
    steps = _attach.Steps(adaptor.sentinel_torch_step)
    optim = sys.modules["torch.optim.optimizer"]  # the package hides the module behind its class
    make = optim.Optimizer.__init__

    @functools.wraps(make)
    def made(self, *args, **kwargs):
        adaptor.sentinel_torch_optimizer()
        make(self, *args, **kwargs)

    optim.Optimizer.__init__ = made
    if hasattr(optim, "register_optimizer_step_post_hook"):
        return optim.register_optimizer_step_post_hook(_ended_by(steps, adaptor))
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


if __name__ == "__main__":
    import torch
    adaptor, folder = _build_for(torch), os.path.join(sys.argv[1], "adaptors")
    if not os.path.exists(os.path.join(folder, adaptor._name(sys.argv[1]))):
        adaptor.build(sys.argv[1], folder)
else:
    _attach.after("torch", attach)
