"""The ops of a step, the tensors that they name, and when these were born and died, as `sentinel trace` sees them. A
tensor is a storage, whether it has memory or none; views alias it. The words are those of `sentinel record`."""
import functools
import gzip
import json
import os
import time
import weakref

_PRELUDE = "(step begins)"
_KEEP_A_COPY = {"aten::hardtanh_", "aten::hardswish_", "aten::hardsigmoid_", "aten::silu_", "aten::mish_"}


def gather(values, kind, found):
    """What is of that kind in values and in lists of them."""
    for value in values:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            gather(value, kind, found)
        elif isinstance(value, dict):
            gather(value.values(), kind, found)


def has_storage(tensor):
    try:
        tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # it is sparse, or of a library
        return False
    return True


class _Life:
    """Of a storage that is alive, in the step at hand."""
    __slots__ = ("bytes", "number", "reference")

    def __init__(self, storage, died):
        self.bytes, self.number = storage.nbytes(), None
        self.reference = weakref.ref(storage, died)


class Step:
    """One that is over, or goes on."""

    def __init__(self):
        self.ops = []      # name, layer, phase, us, read, written, parent
        self.layers = []   # name, phase
        self.tensors = []  # bytes, born, dies, ordinal
        self._made = []    # by op: how many tensors it has made
        self.add_op(_PRELUDE, "forward", "")
        self.layers.clear()  # it is in the layer of what comes next

    def add_op(self, name, phase, parent):
        if not self.layers:
            self.layers.append((name, phase))
        self.ops.append([name, max(0, len(self.layers) - 1), phase, 0.0, set(), set(), parent])
        self._made.append(0)
        return len(self.ops) - 1

    def add_layer(self, name, phase):
        if not self.layers or self.layers[-1] != (name, phase):
            self.layers.append((name, phase))

    def add_tensor(self, size, born):
        ordinal = 0
        if born is not None:
            ordinal = self._made[born]
            self._made[born] += 1
        self.tensors.append([size, born, None, ordinal])
        return len(self.tensors) - 1

    def signature(self):
        return hash((tuple(op[0] for op in self.ops), tuple((size, born) for size, born, _, _ in self.tensors
                                                            if born is not None)))

    def write(self, path, header):
        """As a tensor trace (docs/reference/trace-format.md), whose tensors say when they are born and die."""
        named = set()
        for _, _, _, _, read, written, _ in self.ops:
            named.update(read)
            named.update(written)
        partial = f"{path}.{os.getpid()}"
        opened = functools.partial(gzip.open, compresslevel=1) if path.endswith(".gz") else open
        with opened(partial, "xt", encoding="utf-8") as file:
            def line(content):
                file.write(json.dumps(content) + "\n")

            line(header)
            for number, tensor in enumerate(self.tensors):
                line(self._tensor_line(number, tensor))
            begun = -1
            for number, (name, layer, phase, us, read, written, parent) in enumerate(self.ops):
                content = {"k": number, "name": name, "us": round(us, 3), "in": sorted(read), "out": sorted(written),
                           "phase": phase, "layer": layer}
                if layer != begun:
                    begun, content["layer_name"] = layer, self.layers[layer][0] if self.layers else name
                if parent:
                    content["op"] = parent
                line(content)
        os.replace(partial, path)

    def _tensor_line(self, number, tensor):
        size, born, dies, ordinal = tensor
        kind = "global" if born is None or dies is None else "workspace" if born == dies else "intermediate"
        content = {"t": number, "bytes": size, "kind": kind, "born": born, "dies": dies, "ordinal": ordinal}
        if born is None:
            content["name"] = f"persistent:{number}"
        else:
            name, layer = self.ops[born][:2]
            content["name"] = f"{self.layers[layer][0] if self.layers else _PRELUDE}/{name}:{ordinal}"
        return content


class Recorder:
    """Makes a Step of what the dispatch mode sees."""

    def __init__(self, torch, costs):
        self._torch, self._costs = torch, costs
        self._lives = {}       # of storages, by their address
        self._watches = {}     # of storages beside these
        self._layer_of = {}    # by the number of a node of the graph
        self._layer = None     # that the forward pass is in
        self._noted = 0        # before this number
        self._optimizer = 0
        self._own = False      # torch.tensor's own ops
        self._in_graph = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._sequence = torch.autograd._get_sequence_nr
        self._node = torch._C._current_autograd_node
        self.step = Step()

    def begin(self):
        """A step, after another."""
        self.step = Step()
        self._layer_of.clear()
        self._layer, self._noted = None, self._sequence()
        for life in self._lives.values():
            life.number = self.step.add_tensor(life.bytes, None)

    def end(self):
        return self.step

    def layer(self, name, phase):
        self._layer = name
        self.step.add_layer(name, phase)

    def optimizer_begins(self, name):
        if self._optimizer == 0:
            self.step.add_layer(name, "optimizer")
        self._optimizer += 1

    def optimizer_ends(self):
        self._optimizer = max(0, self._optimizer - 1)

    def _phase(self):
        if self._optimizer:
            return "optimizer", ""
        node = self._node()
        if node is None:
            return ("backward" if self._in_graph() != -1 else "forward"), ""
        layer = self._layer_of.get(node._sequence_nr())
        if layer is not None:
            self.step.add_layer(layer, "backward")
        return "backward", node.name()

    def op_begins(self, op, tensors):
        phase, parent = self._phase()
        self._own = False
        if op.name == "aten::lift_fresh" and tensors and not self._is_known(tensors[0]):
            if tensors[0].dim() > 0 and self._is_ours(tensors):  # it is torch.tensor's own
                made = self.step.add_op("aten::empty", phase, parent)
                self._see(tensors[0], made)
                self._own = True
        number = self._in_last(op, tensors)
        if number is None:
            number = self.step.add_op(op.name, phase, parent)
        if phase == "forward" and self._layer is not None:  # the nodes that were made for it
            now = self._sequence()
            for node in range(self._noted, now):
                self._layer_of[node] = self._layer
            self._noted = max(self._noted, now)
        return number

    def _in_last(self, op, tensors):
        """Before it writes what its gradient needs, autograd keeps a copy: that is a part of the op."""
        number = len(self.step.ops) - 1
        name, layer, _, _, read, written, _ = last = self.step.ops[number]
        if op.name not in _KEEP_A_COPY or name != "aten::clone" or not tensors or read != self._named(tensors[:1], None):
            return None
        if layer != max(0, len(self.step.layers) - 1) or not any(self.step.tensors[each][2] is None for each in written):
            return None
        last[0] = op.name
        return number

    def op_ends(self, number, op, args, kwargs, tensors, made, out):
        entry = self.step.ops[number]
        written = set()
        for place in op.writes:
            value = args[place] if isinstance(place, int) and place < len(args) else kwargs.get(place)
            changed = []
            gather((value,), self._torch.Tensor, changed)
            written.update(self._named(changed, None))
        entry[4] = self._named(tensors, None)
        # A view of what nobody has seen is one of the program's own memory.
        own = not op.views or (op.name == "aten::lift_fresh" and self._is_ours(made))
        of_op = self._named(made, number if own else None)
        entry[5] |= written | {each for each in of_op if self.step.tensors[each][1] == number}
        entry[3] += self._costs.us(op, args, kwargs, tensors, made, out)
        if self._own:  # it goes on to cut the tensor off the graph
            after = self.step.add_op("aten::detach_", entry[2], entry[6])
            self.step.ops[after][4] = self.step.ops[after][5] = set(entry[4])

    def _named(self, tensors, born):
        """The numbers of their storages. Memory that the program brought is nobody's."""
        numbers = {self._see(tensor, born) for tensor in tensors}
        numbers.discard(None)
        return numbers

    @staticmethod
    def _is_ours(tensors):
        """NumPy's memory cannot be resized."""
        return bool(tensors) and has_storage(tensors[0]) and tensors[0].untyped_storage().resizable()

    def _is_known(self, tensor):
        return has_storage(tensor) and tensor.untyped_storage()._cdata in self._lives

    def _see(self, tensor, born):
        if not has_storage(tensor):
            return None
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if size == 0:
            return None
        life = self._lives.get(storage._cdata)
        if life is None:
            if born is None:
                return None
            life = self._watch(storage, born)
        elif size > life.bytes:  # it was resized
            life.bytes = self.step.tensors[life.number][0] = size
        return life.number

    def _watch(self, storage, born):
        key = storage._cdata

        def died(_):
            life = self._lives.pop(key, None)
            if life is not None and life.number is not None:
                self.step.tensors[life.number][2] = len(self.step.ops) - 1

        life = self._lives[key] = _Life(storage, died)
        life.number = self.step.add_tensor(life.bytes, born)
        return life

    def when_freed(self, storage, told):
        key = storage._cdata

        def died(_):
            self._watches.pop(key, None)
            told(key)

        self._watches[key] = weakref.ref(storage, died)


_MATRIX_RATES = ("flops", "conv_flops", "half_flops")


class Costs:
    """Estimates how long an op takes, by its multiplications, the bytes that it names, and the time to start it."""

    def __init__(self, torch):
        from torch.utils.flop_counter import flop_registry
        self._torch, self._formulas = torch, flop_registry
        given = os.environ.get("SENTINEL_TRACE_RATES")
        self._rates = json.loads(given) if given else _measured(torch)

    def us(self, op, args, kwargs, tensors, made, out):
        if op.views or op.name.startswith(("aten::empty", "aten::new_empty", "aten::lift_fresh", "aten::detach")):
            return 0.0  # it looks at what there is
        moved = sum(self._bytes(tensor) for tensor in tensors) + sum(self._bytes(tensor) for tensor in made)
        if moved == 0:
            return 0.0
        rates = self._rates
        seconds = max(moved / rates["bandwidth"], self._flops(op, args, kwargs, tensors, out) / self._rate(op, tensors))
        return rates["op_us"] + 1e6 * seconds

    def _rate(self, op, tensors):
        if tensors and tensors[0].element_size() == 2:
            return self._rates["half_flops"]
        return self._rates["conv_flops" if "conv" in op.name else "flops"]

    @staticmethod
    def _bytes(tensor):
        """Of an expanded tensor those that there are."""
        size = tensor.numel() * tensor.element_size()
        return min(size, tensor.untyped_storage().nbytes()) if has_storage(tensor) else size

    def _flops(self, op, args, kwargs, tensors, out):
        formula = self._formulas.get(op.packet)
        if formula is not None:
            return formula(*args, **kwargs, out_val=out)
        if "scaled_dot_product" in op.name:
            query, key = tensors[0], tensors[1]
            if "backward" in op.name:
                query, key = tensors[1], tensors[2]
            products = 2 * query.numel() * key.shape[-2]
            return products * (5 if "backward" in op.name else 2)
        if "mkldnn_rnn_layer" in op.name:  # input, and the weights of input and state
            rows = tensors[0].numel() // tensors[0].shape[-1]
            products = 2 * rows * (tensors[1].numel() + tensors[2].numel())
            return products * (2 if "backward" in op.name else 1)
        return 0


def _measured(torch):
    """Of this machine, with as many threads as the program begins with: multiplications of matrices, and copies."""
    def fastest(function):
        function()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    matrix, block = torch.ones(768, 768), torch.ones(1 << 22)
    there = torch.empty_like(block)
    flops = 2 * 768 ** 3 / fastest(lambda: matrix @ matrix)
    return {"flops": flops, "conv_flops": flops, "half_flops": flops, "op_us": 5.0,
            "bandwidth": 2 * block.numel() * 4 / fastest(lambda: there.copy_(block))}
