"""Attaches Sentinel to PyTorch: loads the adaptor, finds layers and steps through public hooks. As a
script: `HOME [FOLDER]` builds the adaptor for this interpreter's PyTorch, or the unpacked one of that folder, into the
home."""
import ctypes
import functools
import os
import re
import sys
import weakref

try:
    from . import _attach, _prebuilt, _torch_compile, _torch_gpu, _torch_groups, _torch_replays, _torch_verify
    from . import _torch_weights
except ImportError:
    import _attach
    import _prebuilt
    import _torch_compile
    import _torch_gpu
    import _torch_groups
    import _torch_replays
    import _torch_verify
    import _torch_weights


# The unit that is compiled, and its parts: each belongs to the name of the result.
_SOURCES = ["torch.cpp", "torch_compiled.h", "torch_device.h", "torch_frames.h", "torch_observers.h",
            "torch_operands.h", "torch_recipes.h", "torch_replays.h", "torch_steps.h", "torch_weights.h"]


class _Unpacked:
    """A PyTorch that nothing has imported: the folder `torch` of a wheel."""

    def __init__(self, folder):
        self.__file__ = os.path.join(folder, "__init__.py")
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            self.__version__ = re.search(r"^__version__ = '([^']+)'", file.read(), re.M)[1]

    def compiled_with_cxx11_abi(self):
        with open(os.path.join(os.path.dirname(self.__file__), "lib", "libc10.so"), "rb") as file:
            return b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11" in file.read()


def _build_for(torch):
    """One file per PyTorch build, interpreter-independent: the adaptor uses C++ interfaces only."""
    base, version = os.path.dirname(torch.__file__), str(torch.__version__)
    abi = int(torch.compiled_with_cxx11_abi())
    own = os.path.join(base, "include")
    includes = [own, os.path.join(base, "include/torch/csrc/api/include")]
    libraries = os.path.join(base, "lib")
    standard = "c++17" if int(version.split(".")[0]) < 2 else "c++20"
    # Debian's folder has links to the system's headers, which may be absent.
    headers = _prebuilt.Headers(os.path.dirname(os.path.realpath(os.path.join(own, "ATen"))),
                                ("ATen/", "c10/", "caffe2/", "torch/"))

    def arguments(source):
        return [f"-std={standard}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                *("-isystem" + path for path in includes if os.path.isdir(path)),
                os.path.join(source, _SOURCES[0]), "-L" + libraries, "-lc10", "-ltorch_cpu"]

    return _attach.Build(f"PyTorch {version}", f"torch-{version.split('+')[0]}", "torch", version,
                         ".".join(version.split(".")[:2]), "cxx11" if abi else "cxx98", headers,
                         f"{version} {torch.__file__} {bool(abi)}", _SOURCES, arguments)


def attach(torch):
    """Called once, when torch has been imported. Ends the process where the session cannot start."""
    if os.environ.get("SENTINEL_MODE") == "trace":
        if _attach.claim("torch"):
            _trace(torch)
        return
    witness = _witness_of(torch)
    if witness is not None and "SENTINEL_PLAIN" in os.environ:  # trains without Sentinel
        _after_optimizers(torch, witness.stepped)
        return
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
    if not on_gpu:
        _split_optimizers(torch)
    weights = None if on_gpu else _torch_weights.Weights(torch, adaptor)
    moves_only = os.environ.get("SENTINEL_POLICY") == "sentinel" and "SENTINEL_PLAN" not in os.environ
    plans = os.environ["SENTINEL_MODE"] == "run" and not moves_only
    if plans and adaptor.sentinel_torch_may_replay():
        _torch_replays.tell(torch, adaptor)
    layers = _Layers(torch, adaptor, weights)
    steps = _find_steps(torch, adaptor, layers, weights, witness)
    _attach.profile_begins.append(lambda: layers.listen(adaptor.sentinel_torch_tells()))
    if on_gpu or not _torch_compile.can_manage(torch):
        _torch_compile.refuse(torch, core, [layers, steps])
    else:
        _torch_compile.manage(torch, core, adaptor, library, layers, weights)


def _trace(torch):
    """Of `sentinel trace`: there is no session, and no library."""
    try:
        from . import _torch_trace
    except ImportError:
        import _torch_trace
    _split_optimizers(torch)
    _torch_trace.begin(torch, lambda adaptor: _Layers(torch, adaptor, None), lambda told: _after_optimizers(torch, told))


def _split_optimizers(torch):
    """In the processor's memory an op waits for what it touches, so one that nobody can split is served as it is."""
    _torch_groups.split(torch, lambda: _torch_groups.BYTES, _torch_compile.is_compiling_of(torch))


class _Layers:
    """A layer begins at a module that owns a weight of two or more dimensions, and lasts until the
    next begins. Its name is the module's path in the model that was called. Where nothing is told, nobody listens."""

    def __init__(self, torch, adaptor, weights):
        self._register = torch.nn.modules.module.register_module_forward_pre_hook
        self._is_compiling = _torch_compile.is_compiling_of(torch)
        self._is_lazy = torch.nn.parameter.is_lazy  # it has no shape until its module was called
        self._adaptor, self._weights = adaptor, weights
        self._names, self._heavy = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
        self._known = self._gone = False
        self._hook = None
        adaptor.sentinel_torch_layer.argtypes = [ctypes.c_char_p]
        adaptor.sentinel_torch_model.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.listen(True)

    def listen(self, wanted):
        if wanted and self._hook is None and not self._gone:
            self._hook = self._register(self._begins)
        elif not wanted and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def remove(self):
        """For good."""
        self.listen(False)
        self._gone = True

    def _begins(self, module, inputs):
        if self._is_compiling():
            return
        if not self._known:  # the first module called is the model, its input's first dimension the batch
            self._known = True
            shape = getattr(inputs[0], "shape", None) if inputs else None
            self._adaptor.sentinel_torch_model(type(module).__name__.encode(), shape[0] if shape else 0)
        if module not in self._names:
            if self._weights is not None:
                self._weights.of_module(module)
            prefix = type(module).__name__
            for path, child in module.named_modules():
                self._names.setdefault(child, f"{path or prefix}")
        if module not in self._heavy:
            self._heavy[module] = any(not self._is_lazy(p) and p.dim() >= 2 for p in module.parameters(recurse=False))
        if self._heavy[module]:
            self._adaptor.sentinel_torch_layer(self._names[module].encode())


def _after_optimizers(torch, told, compiled=lambda: None):
    """told(optimizer) is called after each of its steps. Dynamo traces the hook with a step that is compiled: it must
    put nothing there, and calls compiled() once."""
    optim = sys.modules["torch.optim.optimizer"]  # the package hides the module behind its class
    if hasattr(optim, "register_optimizer_step_post_hook"):
        is_compiling, compiled = _torch_compile.is_compiling_of(torch), _torch_compile.constant(compiled)

        def ended(optimizer, args, kwargs):
            if is_compiling():
                compiled()
                return
            told(optimizer)

        return optim.register_optimizer_step_post_hook(ended)
    construct = optim.Optimizer._hook_for_profile

    def hooked(self):
        construct(self)
        step = type(self).step
        if getattr(step, "_sentinel", False):
            return

        def stepped(self, *args, **kwargs):
            result = step(self, *args, **kwargs)
            told(self)
            return result

        stepped._sentinel = True
        stepped.hooked = True
        stepped.__wrapped__ = step
        type(self).step = stepped

    optim.Optimizer._hook_for_profile = hooked


def _find_steps(torch, adaptor, layers, weights, witness):
    def ended():
        layers.listen(adaptor.sentinel_torch_step())
        if weights is not None:
            weights.tell()

    steps = _attach.Steps(ended)
    optim = sys.modules["torch.optim.optimizer"]
    make = optim.Optimizer.__init__

    @functools.wraps(make)
    def made(self, *args, **kwargs):
        adaptor.sentinel_torch_optimizer()
        make(self, *args, **kwargs)
        if weights is not None:
            weights.of_optimizer(self)

    optim.Optimizer.__init__ = made

    def told(optimizer):
        if witness is not None:
            witness.stepped(optimizer)
        steps.updated(optimizer)

    def compiled():
        adaptor.sentinel_torch_optimizer_compiled()
        return True

    return _after_optimizers(torch, told, compiled)


def _witness_of(torch):
    """Of `sentinel verify`. Else none."""
    if "SENTINEL_WITNESS" not in os.environ:
        return None
    return _torch_verify.Witness(torch, _attach.program_ended, _torch_compile.is_compiling_of(torch))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _build_for(_Unpacked(sys.argv[2])).prebuild(sys.argv[1])
    else:
        import torch
        _build_for(torch).prebuild(sys.argv[1])
else:
    _attach.after("torch", attach)
