"""Tensors without values whose elements are all known to be the same: whether something is finite. A trace takes all
numbers for finite ones, as they are in a training that goes well, so what a program does about others is not traced."""
import math
import operator

try:
    from . import _trace_step
except ImportError:
    import _trace_step

_COMPARE = {"aten::eq": operator.eq, "aten::ne": operator.ne, "aten::lt": operator.lt, "aten::le": operator.le,
            "aten::gt": operator.gt, "aten::ge": operator.ge}
_NEVER = {"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"}
_NOT = {"aten::logical_not", "aten::bitwise_not"}
_AND = {"aten::logical_and", "aten::bitwise_and", "aten::mul"}
_OR = {"aten::logical_or", "aten::bitwise_or"}
_SAME = {"aten::any", "aten::all", "aten::_to_copy", "aten::clone"}
_JOINED = {"aten::stack", "aten::cat"}
_SUMS = {"aten::sum", "aten::count_nonzero"}


class Uniform:
    """By storage, so that views have their base's."""

    def __init__(self, torch, recorder, is_unknown):
        self._torch, self._recorder, self._is_unknown = torch, recorder, is_unknown
        self._values = {}

    def of(self, tensor):
        """The value of all elements: a bool or an int. None: not known, as of any number that is no tensor."""
        if not self._values or not isinstance(tensor, self._torch.Tensor) or not _trace_step.has_storage(tensor):
            return None
        return self._values.get(tensor.untyped_storage()._cdata)

    def _operand(self, value):
        if not isinstance(value, self._torch.Tensor) or self._is_unknown(value):
            return self.of(value)
        return value.item() if value.numel() == 1 and value.dtype == self._torch.bool else None

    def written(self, tensor):
        if self._values and _trace_step.has_storage(tensor):
            self._values.pop(tensor.untyped_storage()._cdata, None)

    def made(self, name, args, out):
        """`out`: the result of an op of which some operand has no values."""
        if not isinstance(out, self._torch.Tensor) or not args or not _trace_step.has_storage(out):
            return
        value = self._value(name, args, out)
        if value is not None:
            storage = out.untyped_storage()
            if storage._cdata not in self._values:
                self._recorder.when_freed(storage, lambda freed: self._values.pop(freed, None))
            self._values[storage._cdata] = value

    def _value(self, name, args, out):
        if name in _NEVER:
            return False
        if name in _JOINED:
            values = {self._operand(each) for each in args[0]}
            return values.pop() if len(values) == 1 else None
        value = self._operand(args[0])
        if name in _COMPARE:
            return self._compared(name, value, *args[:2])
        if name in _AND | _OR and out.dtype == self._torch.bool:
            decides = name in _OR
            values = [value, self._operand(args[1])]
            return decides if decides in values else None if None in values else not decides
        if value is None:
            return None
        if name in _NOT and out.dtype == self._torch.bool:
            return not value
        if name in _SUMS:
            return value * (args[0].numel() // max(1, out.numel()))
        return value if name in _SAME else None

    @staticmethod
    def _compared(name, value, first, second):
        if first is second:
            return name in ("aten::eq", "aten::le", "aten::ge")
        if not isinstance(second, (int, float)):
            return None
        if value is None and math.isinf(second):
            value = 0
        return None if value is None else _COMPARE[name](value, second)
