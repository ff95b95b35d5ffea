"""torch.compile on the processor. Inductor's kernels are compiled so that the adaptor's observers see each as an op;
pools in which Inductor would plan memory itself are switched off; other backends are left unmanaged."""
import ctypes
import functools
import inspect
import sys

try:
    from . import _attach
except ImportError:
    import _attach

# Backends that run what the dispatcher sees, and Inductor. A backend that is a function is the program's own.
_SEEN = {"inductor", "eager", "eager_noexcept", "eager_debug", "pre_dispatch_eager", "aot_eager",
         "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref", "aot_eager_default_partitioner"}
_MARKS, _POOLS = "cpp.enable_kernel_profile", "memory_planning"


def can_manage(torch):
    """Not before PyTorch 2.1."""
    return hasattr(getattr(torch, "compiler", None), "is_compiling")


def is_compiling_of(torch):
    """The function that is true where Dynamo traces, and a constant for it."""
    return torch.compiler.is_compiling if can_manage(torch) else lambda: False


def constant(function):
    """Dynamo calls it while it traces, and takes the result for a constant (torch.compiler.assume_constant_result,
    which would import Dynamo)."""
    function._dynamo_marked_constant = True
    return function


def refuse(torch, core, hooks):
    """Of a GPU's memory compiled code takes some where no plan sees it. The hooks go, or Dynamo would trace them."""
    def begins(backend, model):
        core.sentinel_unsupported(b"torch.compile")
        while hooks:
            hooks.pop().remove()

    _notice(torch, begins)


def manage(torch, core, adaptor, library, layers, weights):
    """`library`: the adaptor's path. `layers`: the hook that finds them in modules, which Dynamo would trace.
    `weights`: takes those of a module."""
    hooks = [layers]

    def begins(backend, model):
        if isinstance(backend, str) and backend not in _SEEN:
            core.sentinel_unsupported(f"torch.compile with the backend {backend}".encode())
        if model is not None:
            weights.of_module(model)
            adaptor.sentinel_torch_model(type(model).__name__.encode(), 0)
        if hooks:
            hooks.pop().remove()
            adaptor.sentinel_torch_layers_by_op()

    _notice(torch, begins)
    _attach.after("torch._inductor.compile_fx",
                  lambda module: _mark_kernels(module, torch, core, adaptor, library))


def _notice(torch, begins):
    """begins(backend, model or None) before the program compiles something."""
    if not hasattr(torch, "compile"):
        return
    compile_ = torch.compile

    @functools.wraps(compile_)
    def noticed(*args, **kwargs):
        model = args[0] if args else kwargs.get("model")
        if not kwargs.get("disable"):
            begins(kwargs.get("backend", "inductor"), model if isinstance(model, torch.nn.Module) else None)
        return compile_(*args, **kwargs)

    torch.compile = noticed


def _mark_kernels(module, torch, core, adaptor, library):
    """Each compilation gets the options that Sentinel needs. As options they are a part of the key of Inductor's
    caches, and of a backward pass that is compiled later."""
    config = sys.modules["torch._inductor.config"]
    if not (hasattr(config.cpp, "enable_kernel_profile") and _resolve_marks(adaptor, library)):
        core.sentinel_unsupported(f"Inductor of PyTorch {torch.__version__}, whose kernels cannot be observed,".encode())
        return
    _tell_operands(torch, adaptor)
    compile_fx, signature = module.compile_fx, inspect.signature(module.compile_fx)
    told = False

    def effective(patches, key):
        where = config.cpp if key.startswith("cpp.") else config
        return patches.get(key, getattr(where, key.rpartition(".")[2], None))

    @functools.wraps(compile_fx)
    def marked(*args, **kwargs):  # compile_fx() calls itself once the options hold
        nonlocal told
        call = signature.bind(*args, **kwargs)
        patches = dict(call.arguments.get("config_patches") or {})
        wanted = {key: value for key, value in ((_MARKS, True), (_POOLS, False))
                  if bool(effective(patches, key)) != value}
        if _POOLS in wanted and not told:
            told = True
            _attach.tell("Inductor's memory planning is switched off: its pools would hold tensors that could leave "
                         "fast memory one by one")
        if wanted:
            call.arguments["config_patches"] = {**patches, **wanted}
        return compile_fx(*call.args, **call.kwargs)

    module.compile_fx = marked


def _tell_operands(torch, adaptor):
    """A wrapper in Python calls a fused kernel with its tensors. They are told before, where they are wanted: the
    kernel's mark names none. Where this Inductor loads its kernels in another way, page counts alone have them."""
    codes = getattr(sys.modules.get("torch._inductor.codecache"), "CppPythonBindingsCodeCache", None)
    if not hasattr(codes, "load_pybinding_async"):
        return
    adaptor.sentinel_torch_kernel_operands.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    load = codes.load_pybinding_async.__func__

    def telling(kernel, argtypes):
        places = [place for place, kind in enumerate(argtypes) if kind.rstrip().endswith("*")]
        if not places:  # of a wrapper in C++
            return kernel
        writes = (ctypes.c_int * len(places))(*("const" not in argtypes[place] for place in places))

        def run(*args):
            if not adaptor.sentinel_torch_wants_operands():
                return kernel(*args)
            operands = [args[place] for place in places]
            if not all(isinstance(operand, torch.Tensor) for operand in operands):
                return kernel(*args)
            tensors = (ctypes.c_void_p * len(places))(*(operand._cdata for operand in operands))
            adaptor.sentinel_torch_kernel_operands(tensors, writes, len(places))
            try:
                return kernel(*args)
            finally:
                adaptor.sentinel_torch_kernel_operands(None, None, 0)

        return run

    @functools.wraps(load)
    def load_and_tell(cls, argtypes, *args, **kwargs):
        get_kernel = load(cls, argtypes, *args, **kwargs)
        if cls is not codes:
            return get_kernel
        return functools.cache(lambda: telling(get_kernel(), argtypes))

    codes.load_pybinding_async = classmethod(load_and_tell)


def _resolve_marks(adaptor, library):
    """A kernel with marks calls two functions of PyTorch's and is not linked with it. The adaptor passes them on, where
    all libraries find it."""
    if not adaptor.sentinel_torch_has_marks():
        return False
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True
