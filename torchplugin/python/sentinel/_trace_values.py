"""What a program of `sentinel trace` may do with the values of tensors that have none. A number that is printed is a
stand-in, and is told of once; what the training's course or a tensor's size would depend on ends the trace and says
where."""
import os
import sys

try:
    from . import _attach
except ImportError:
    import _attach

_STAND_IN = 1.0
_REMEDY = "a trace has no values: profile the training with `sentinel record`, which runs it"
_told = set()


def place_in_program():
    """The innermost line that is neither Python's, PyTorch's nor ours."""
    torch = os.path.dirname(sys.modules["torch"].__file__)
    python = os.path.dirname(os.__file__)
    own = os.path.dirname(os.path.abspath(__file__))
    frame, outermost = sys._getframe(1), None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<"):
            outermost = f"{os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file}:{frame.f_lineno}"
            library = file.startswith(python) and "-packages" not in file
            if not file.startswith((torch + os.sep, own + os.sep)) and not library:
                return outermost
        frame = frame.f_back
    return outermost or "the program"


def _stop(what):
    _attach.stop(f"{place_in_program()} {what}; {_REMEDY}")


def _tell_stand_in(how):
    place = place_in_program()
    if place not in _told:
        _told.add(place)
        _attach.tell(f"{place} {how}, and a trace has no values: it gets {_STAND_IN:g}")


class UnknownFloat(float):
    """A value that is not known. It may be computed with and printed, and nothing may be decided by it."""

    def _decides(self, *_):
        _stop("decides by the value of a tensor")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = __int__ = __trunc__ = _decides
    __hash__ = float.__hash__


class UnknownWhole:
    """Such a whole number, as a count of right answers is one. It is no size."""

    def __float__(self):
        return float(_STAND_IN)

    def _decides(self, *_):
        _stop("takes the value of a tensor for a size, or decides by it")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __bool__ = __int__ = __index__ = __trunc__ = _decides
    __hash__ = object.__hash__

    def __str__(self):
        return f"{_STAND_IN:g}"

    __repr__ = __str__

    def __format__(self, how):
        return format(int(_STAND_IN), how)


def _computes(name):
    operation = getattr(float, name)

    def computed(self, *others):
        numbers = [float(other) if isinstance(other, (int, float, UnknownWhole)) else other for other in others]
        result = operation(float.__add__(self, 0.0) if isinstance(self, float) else _STAND_IN, *numbers)
        return UnknownFloat(result) if isinstance(result, float) else result

    return computed


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "mod", "rmod",
              "floordiv", "rfloordiv", "neg", "pos", "abs", "round"):
    for _class in (UnknownFloat, UnknownWhole):
        setattr(_class, f"__{_name}__", _computes(f"__{_name}__"))


def read(torch, tensor):
    """The value of a tensor that has none, for the dispatcher: a plain number."""
    if tensor.dtype.is_floating_point:
        _tell_stand_in("looks at the value of a tensor")
        return _STAND_IN
    if tensor.dtype == torch.bool:
        _stop("decides by the value of a tensor")
    _stop("takes the value of a tensor for a size, or decides by it")


def errors(torch):
    """Of ops whose results' sizes depend on values."""
    from torch._subclasses import fake_tensor
    return (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException)


def stop_at_op(torch, name, error):
    from torch._subclasses import fake_tensor
    if isinstance(error, fake_tensor.DynamicOutputShapeException):
        _stop(f"runs {name}, and the size of its result depends on the values of tensors")
    if isinstance(error, fake_tensor.DataDependentOutputException):
        _stop(f"runs {name}, and decides by the values of tensors")
    _attach.stop(f"{place_in_program()} runs {name}, whose results' sizes PyTorch cannot tell without running it; "
                 f"{_REMEDY}")


def watch(torch, fake_tensor, mode):
    """Replaces what looks at values past the dispatcher, and what makes no sense without any."""
    item = torch.Tensor.item

    def item_of(tensor):
        if not mode.is_unknown(tensor) or tensor.numel() != 1:
            return item(tensor)
        if sys._getframe(1).f_code.co_filename.endswith(os.path.join("amp", "grad_scaler.py")):
            return 0.0  # no gradient is infinite
        if mode.uniform.of(tensor) is not None:
            return mode.uniform.of(tensor)
        if tensor.dtype == torch.bool:
            _stop("decides by the value of a tensor")
        _tell_stand_in("looks at the value of a tensor")
        return UnknownFloat(_STAND_IN) if tensor.dtype.is_floating_point else UnknownWhole()

    format_ = torch.Tensor.__format__

    def formatted(tensor, how):
        unknown = mode.is_unknown(tensor) and tensor.dim() == 0
        return format(item_of(tensor), how) if unknown else format_(tensor, how)

    _replace(torch, fake_tensor, "item", item_of)
    _replace(torch, fake_tensor, "__format__", formatted)
    for name, what in (("tolist", "turns a tensor into a list"), ("numpy", "turns a tensor into a NumPy array"),
                       ("__array__", "turns a tensor into a NumPy array"), ("data_ptr", "takes a tensor's address"),
                       ("__dlpack__", "hands a tensor to another library")):
        _guard(torch, fake_tensor, mode, name, what)
    _load_here(torch)
    _convert(torch, mode)
    _leave_out(torch)
    _begin_without_values(torch, mode)
    # Ops on lists of tensors are chosen by the tensors' class.
    lists = sys.modules.get("torch.utils._foreach_utils")
    kinds = getattr(lists, "_foreach_supported_types", None)
    if isinstance(kinds, list) and fake_tensor not in kinds:
        kinds.append(fake_tensor)


def _replace(torch, fake_tensor, name, function):
    for owner in (torch.Tensor, fake_tensor):
        if owner is torch.Tensor or name in vars(owner):
            setattr(owner, name, function)


def _guard(torch, fake_tensor, mode, name, what):
    original = getattr(torch.Tensor, name)

    def guarded(tensor, *args, **kwargs):
        if mode.is_unknown(tensor) and not _asked_by_torch():
            _stop(what)
        return original(tensor, *args, **kwargs)

    _replace(torch, fake_tensor, name, guarded)


def _asked_by_torch():
    torch = os.path.dirname(sys.modules["torch"].__file__)
    return sys._getframe(2).f_code.co_filename.startswith(torch + os.sep)


# What a DataLoader is given for its processes: the place, the name, and the value for none.
_OF_WORKERS = [(5, "num_workers", 0), (7, "pin_memory", False), (9, "timeout", 0), (11, "multiprocessing_context", None),
               (None, "prefetch_factor", None), (None, "persistent_workers", False)]


def _convert(torch, mode):
    """Module.to() lets a parameter and its converted self change places, and refuses where anybody refers to one weakly.
    The mode's memory does."""
    swap = getattr(torch.utils, "swap_tensors", None)
    if swap is None:
        return

    def swapped(first, second):
        mode.forget(first, second)
        swap(first, second)

    torch.utils.swap_tensors = swapped


def _load_here(torch):
    """What loads data does so in this process: a forked one has no part in the trace."""
    from torch.utils.data import DataLoader
    make = DataLoader.__init__

    def made(self, *args, **kwargs):
        args = list(args)
        for place, name, without in _OF_WORKERS:
            kwargs.pop(name, None)
            if place is not None and place < len(args):
                args[place] = without
        make(self, *args, **kwargs)

    DataLoader.__init__ = made


def _begin_without_values(torch, mode):
    """It draws until all values lie between a and b."""
    original = getattr(torch.nn.init, "_no_grad_trunc_normal_", None)
    if original is None:
        return

    def trunc_normal(tensor, mean, std, a, b, *args, **kwargs):
        if not mode.is_unknown(tensor):
            return original(tensor, mean, std, a, b, *args, **kwargs)
        with torch.no_grad():
            return tensor.uniform_(a, b)

    torch.nn.init._no_grad_trunc_normal_ = trunc_normal


def _leave_out(torch):
    def save(*args, **kwargs):
        if "save" not in _told:
            _told.add("save")
            _attach.tell(f"{place_in_program()} saves tensors, and a trace has no values: nothing is written")

    def compile_(model=None, **kwargs):
        if "compile" not in _told:
            _told.add("compile")
            _attach.tell(f"{place_in_program()} compiles: the trace is of what runs without the compiler")
        return model if model is not None else lambda function: function

    torch.save = save
    if hasattr(torch, "compile"):
        torch.compile = compile_
        torch.nn.Module.compile = lambda self, *args, **kwargs: None
