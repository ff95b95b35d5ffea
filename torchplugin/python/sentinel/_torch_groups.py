"""Fused and foreach optimizers, averages and norms of gradients, in groups of tensors that a plan can move one by one.

One op of theirs names all parameters, gradients and moments. They all ask one function of PyTorch which tensors go
together, and its answer is split here. All of that is computed element by element, or is a norm of each tensor, and the
groups keep the order: every bit stays."""
import functools
import inspect
import sys

BYTES = 16 << 20  # of a group in the processor's memory: so little that its op takes longer than to begin it
_GROUPING = "_group_tensors_by_device_and_dtype"
_OF_ALL_GRADIENTS = ("_foreach_zero_", "_amp_foreach_non_finite_check_and_unscale_")
_ASKING = ("torch.optim.optimizer", "torch.optim.swa_utils", "torch.nn.utils.clip_grad")


def split(torch, most_bytes, is_compiling=lambda: False):
    """`most_bytes()`: of a group's tensors; a tensor that is larger has a group of its own. `is_compiling()`: Dynamo traces,
    and what it compiles is left as it is. False: in this PyTorch nobody can be asked for smaller groups."""

    def size(tensors):
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if torch.is_tensor(tensor))

    def runs(lists):
        """Slices of these lists, each of whose tensors fit together."""
        most, begin, total = most_bytes(), 0, 0
        length = max(map(len, lists), default=0)
        whole = [one for one in lists if len(one) == length]
        for at in range(length):
            bytes_ = size(one[at] for one in whole)
            if at > begin and total + bytes_ > most:
                yield slice(begin, at)
                begin, total = at, 0
            total += bytes_
        yield slice(begin, length)

    def split_answer(group):
        @functools.wraps(group)
        def grouped(tensorlistlist, with_indices=False):
            if is_compiling():
                return group(tensorlistlist, with_indices)
            parts = {}
            for (device, dtype), (lists, indices) in group(tensorlistlist, with_indices).items():
                for number, part in enumerate(runs(lists)):
                    # Callers take the device of a key, or nothing.
                    parts[device, (dtype, number)] = [one[part] for one in lists], indices[part]
            return parts
        return grouped

    def one_by_one(function):
        @functools.wraps(function)
        def called(tensors, *rest):
            if is_compiling():
                function(tensors, *rest)
                return
            for part in runs([tensors]):
                function(tensors[part], *rest)
        return called

    for name in _OF_ALL_GRADIENTS:
        if hasattr(torch, name):
            setattr(torch, name, one_by_one(getattr(torch, name)))
    if not _is_known(torch, sys.modules["torch.optim.optimizer"]):
        return False
    for name in _ASKING:
        module = sys.modules.get(name)
        if hasattr(module, _GROUPING):
            setattr(module, _GROUPING, split_answer(getattr(module, _GROUPING)))
    return True


def _is_known(torch, optimizer):
    """Whether optimizers ask that function, and it answers with lists and indices by device and dtype. (PyTorch 2.0's
    has the same name and words, and another answer.)"""
    group = getattr(optimizer, _GROUPING, None)
    if group is None or not hasattr(optimizer.Optimizer, _GROUPING):
        return False
    if list(inspect.signature(group).parameters) != ["tensorlistlist", "with_indices"]:
        return False
    one = torch.zeros(1)
    (key, value), = group([[one], []], True).items()
    return (isinstance(key, tuple) and len(key) == 2 and isinstance(value, tuple) and len(value) == 2
            and [list(map(id, part)) for part in value[0]] == [[id(one)], []] and list(value[1]) == [0])
