"""Fused and foreach optimizers, averages and norms of gradients, in groups of tensors that a plan can move one by one.

One op of theirs names all parameters, gradients and moments. They ask one function of PyTorch which tensors go
together, and its answer is split here. All of that is computed element by element, or is a norm of each tensor, and the
groups keep the order: every bit stays."""
import contextlib
import functools
import inspect
import sys

BYTES = 16 << 20  # of a group in the processor's memory: so little that its op takes longer than to begin it
_GROUPING = "_group_tensors_by_device_and_dtype"
_ASKING = ("torch.optim.optimizer", "torch.nn.utils.clip_grad")
_OF_ALL_GRADIENTS = ("_foreach_zero_", "_amp_foreach_non_finite_check_and_unscale_")
_AVERAGES = ("get_ema_multi_avg_fn", "get_swa_multi_avg_fn")


class _Key(tuple):
    """(device, dtype) for whoever unpacks it. Equal to none but itself, so that several groups have the same."""
    __slots__ = ()
    __eq__, __hash__ = object.__eq__, object.__hash__


def split(torch, most_bytes, is_compiling=lambda: False):
    """`most_bytes()`: of a group's tensors; a tensor that is larger has a group of its own. `is_compiling()`: Dynamo
    traces, and gets the whole answer. It makes no tensor: a process that only starts others has none."""
    parts = functools.partial(_parts, torch, most_bytes)
    for name in _OF_ALL_GRADIENTS:
        if hasattr(torch, name):
            setattr(torch, name, _part_by_part(torch, name, parts, is_compiling))
    if not _can_be_asked():
        return
    for name in _ASKING:
        module = sys.modules.get(name)
        if hasattr(module, _GROUPING):
            setattr(module, _GROUPING, _split_answer(getattr(module, _GROUPING), parts, is_compiling))
    averages = sys.modules.get("torch.optim.swa_utils")
    for name in _AVERAGES:
        if hasattr(averages, name):
            setattr(averages, name, _split_average(getattr(averages, name), parts))


def is_known(torch):
    """Whether in this PyTorch somebody can be asked for smaller groups. (PyTorch 2.0's function has the same name and
    words, and another answer.)"""
    if not _can_be_asked():
        return False
    one = torch.zeros(1)
    answer = getattr(sys.modules["torch.optim.optimizer"], _GROUPING)([[one], []], True)
    if not _is_as_known(answer):
        return False
    (lists, indices), = answer.values()
    return [list(map(id, part)) for part in lists] == [[id(one)], []] and list(indices) == [0]


def _can_be_asked():
    optimizer = sys.modules["torch.optim.optimizer"]
    group = getattr(optimizer, _GROUPING, None)
    return (group is not None and hasattr(optimizer.Optimizer, _GROUPING)
            and list(inspect.signature(group).parameters) == ["tensorlistlist", "with_indices"])


def _is_as_known(answer):
    """Lists and indices by device and dtype."""
    return all(isinstance(key, tuple) and len(key) == 2 and isinstance(value, tuple) and len(value) == 2
               for key, value in answer.items())


def _split_answer(group, parts, is_compiling):
    @functools.wraps(group)
    def grouped(tensorlistlist, with_indices=False):
        whole = group(tensorlistlist, with_indices)
        if is_compiling() or not _is_as_known(whole):
            return whole
        return {_Key(key): ([one[part] for one in lists], indices[part])
                for key, (lists, indices) in whole.items() for part in parts(lists)}
    return grouped


def _part_by_part(torch, name, parts, is_compiling):
    """A function of the package `torch` whose first argument are the tensors. For tensors of other classes one call may
    be a collective, and stays one."""
    function = getattr(torch, name)

    @functools.wraps(function)
    def called(*args, **words):
        if is_compiling() or not args or not all(type(each) is torch.Tensor for each in args[0]):
            return function(*args, **words)
        tensors, *rest = args
        results = [function(tensors[part], *rest, **words) for part in parts([tensors])]
        return None if results[-1] is None else tensors

    with contextlib.suppress(AttributeError, ImportError):  # TorchScript knows functions by their identity
        sys.modules["torch.jit._builtins"]._register_builtin(called, f"aten::{name}")
    return called


def _split_average(make, parts):
    """Of the functions that PyTorch itself makes. One of the program's own is called as often as ever."""
    @functools.wraps(make)
    def made(*args, **words):
        average = make(*args, **words)

        @functools.wraps(average)
        def averaged(averages, current, *rest):
            for part in parts([averages, current]):
                average(averages[part], current[part], *rest)
        return averaged
    return made


def _parts(torch, most_bytes, lists):
    """Slices of these lists, each of whose tensors fit together."""
    most, begin, total, found = most_bytes(), 0, 0, []
    length = max(map(len, lists), default=0)
    whole = [one for one in lists if len(one) == length]
    for at in range(length):
        bytes_ = sum(one[at].numel() * one[at].element_size() for one in whole if torch.is_tensor(one[at]))
        if at > begin and total + bytes_ > most:
            found.append(slice(begin, at))
            begin, total = at, 0
        total += bytes_
    if begin == 0 or not _are_apart(torch, lists):
        return [slice(None)]
    return [*found, slice(begin, length)]


def _are_apart(torch, lists):
    """Whether nobody sees in which order they are computed: none of the first list shares an element with another. Nor
    are there sparse ones, for which some optimizers take another way with the whole list."""
    extents = []
    for one in lists:
        if any(torch.is_tensor(tensor) and tensor.layout != torch.strided for tensor in one):
            return False
    for tensor in lists[0]:
        if tensor is not None and tensor.numel() != 0:
            begin = tensor.storage_offset()
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            extents.append((tensor.untyped_storage()._cdata, begin, begin + last))
    extents.sort()
    return all(one[0] != other[0] or one[2] < other[1] for one, other in zip(extents, extents[1:]))
