"""Attaches Sentinel to PyTorch: loads the adaptor, finds layers and steps through public hooks."""
import atexit
import ctypes
import importlib.abc
import os
import sys
import weakref

from . import _build


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the import of torch go its way and attaches when it is complete."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            attach(module)

        spec.loader.exec_module = exec_module
        return spec


def watch_imports():
    sys.meta_path.insert(0, _Finder())


def _stop(message):
    sys.stderr.write(f"sentinel: {message}\n")
    sys.stderr.flush()
    os._exit(125)


def _adaptor(torch):
    """The adaptor's path, compiled first where it has not been for this PyTorch."""
    home = os.environ["SENTINEL_HOME"]
    name = _build.library_name(torch)
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sentinel")
    source = os.path.join(home, "source", "adaptor.cpp")
    for folder in (os.path.join(home, "adaptors"), cache):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(source):
            return path
    os.makedirs(cache, mode=0o700, exist_ok=True)
    path = os.path.join(cache, name)
    if not os.environ.get("SENTINEL_QUIET"):
        sys.stderr.write(f"sentinel: building the adaptor for PyTorch {torch.__version__}, once\n")
    _build.build(torch, home, path)
    return path


def attach(torch):
    """Called once, when torch has been imported. Ends the process where the session cannot start:
    nothing has been trained yet."""
    # What the program's children load is their own decision: only this process is attached here.
    try:
        core = ctypes.CDLL(os.environ["SENTINEL_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
        core.sentinel_last_error.restype = ctypes.c_char_p
        adaptor = ctypes.CDLL(_adaptor(torch))
    except (OSError, RuntimeError, KeyError) as error:
        _stop(f"could not load the PyTorch adaptor: {error}")
    status = adaptor.sentinel_torch_attach()
    if status < 0:
        _stop(core.sentinel_last_error().decode(errors="replace"))
    if status > 0:  # an allocator and nothing else
        return
    hooks = [_find_layers(torch, adaptor), _find_steps(torch, adaptor)]
    _refuse_compile(torch, core, hooks)
    atexit.register(core.sentinel_detach, b"the program ended during the profiling step")


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


def _find_steps(torch, adaptor):
    """A step ends with an optimizer's step. With several optimizers it ends with the last one before
    the first comes round again."""
    seen = []    # until the first comes round again
    last = None

    def after(optimizer):
        nonlocal last
        reference = weakref.ref(optimizer)
        if last is None and reference in seen and len(seen) > 1:
            last = seen[-1]
        elif last is None and reference not in seen:
            seen.append(reference)
        if reference == last or len(seen) == 1:
            adaptor.sentinel_torch_step()

    optim = sys.modules["torch.optim.optimizer"]  # the package hides the module behind its class
    if hasattr(optim, "register_optimizer_step_post_hook"):
        return optim.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after(optimizer))
    construct = optim.Optimizer._hook_for_profile

    def hooked(self):
        construct(self)
        step = type(self).step
        if getattr(step, "_sentinel", False):
            return

        def stepped(self, *args, **kwargs):
            result = step(self, *args, **kwargs)
            after(self)
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
