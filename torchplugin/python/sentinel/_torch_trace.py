"""`sentinel trace`: runs a training with tensors that have sizes and no memory, and writes the ops of a step with the
births and deaths of its tensors. Tensors that are small, and come from such tensors alone, keep their values: what
loads data and counts steps goes on as ever."""
import atexit
import os
import sys

try:
    from . import _attach, _trace_step, _trace_uniform, _trace_values
except ImportError:
    import _attach
    import _trace_step
    import _trace_uniform
    import _trace_values

# What keeps its values at most: parameters of some size are never among them, indices of a data set are.
_KNOWN_BYTES, _KNOWN_WHOLE_BYTES = 64 << 10, 64 << 20
_MOST_WEIGHTS = 512 << 20  # of a layer that is asked for its workspace
_LEAST_STEPS, _MOST_STEPS = 2, 5  # an optimizer makes its states in the first


def begin(torch, layers_of, after_optimizers):
    """`layers_of(adaptor)`: begins to find layers; `after_optimizers(told)`: told(optimizer) after each step of it."""
    if not hasattr(torch.autograd, "_get_sequence_nr") or not hasattr(torch, "_subclasses"):
        _attach.stop(f"sentinel trace needs PyTorch 2.1 or later, and this is {torch.__version__}: profile the training "
                     "with `sentinel record`")
    trace = _Trace(torch)
    trace.watch(layers_of, after_optimizers)
    atexit.register(trace.program_ends)
    trace.mode.__enter__()  # for as long as the program runs
    return trace


class _Trace:
    """Of one program: steps follow each other until two are equal, and the second of these is written."""

    def __init__(self, torch):
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

        class Sole(FakeTensorMode):
            def __deepcopy__(self, _):  # every tensor names its mode, and modes do not mix
                return self
        self._torch = torch
        self.recorder = _trace_step.Recorder(torch, _trace_step.Costs(torch))
        self.mode = _mode_class(torch)(torch, FakeTensor, Sole(), self.recorder)
        self.mode.calibrate()
        self.recorder.begin()
        self._process = os.getpid()
        self._steps, self._last = 0, None
        self._model = ("", 0)
        _trace_values.watch(torch, FakeTensor, self.mode)

    def watch(self, layers_of, after_optimizers):
        # The stand-in for the adaptor's library: plain functions, to which argument types are given.
        def sentinel_torch_layer(name):
            self.recorder.layer(name.decode(errors="replace"), "forward")

        def sentinel_torch_model(name, batch):
            self._model = (name.decode(errors="replace"), batch)

        def begins(optimizer, args, kwargs):
            self.recorder.optimizer_begins(f"Optimizer.step#{type(optimizer).__name__}.step")

        adaptor = type("Adaptor", (), {})()
        adaptor.sentinel_torch_layer, adaptor.sentinel_torch_model = sentinel_torch_layer, sentinel_torch_model
        layers_of(adaptor)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(begins)
        steps = _attach.Steps(self.step_ended)

        marked = []

        def told(optimizer):
            self.recorder.optimizer_ends()
            if not marked:
                steps.updated(optimizer)

        def mark():  # from now on the program says itself where steps end
            marked.append(True)
            self.step_ended()

        after_optimizers(told)
        _attach.marks["sentinel_step"] = mark

    def step_ended(self):
        if os.getpid() != self._process:
            return
        self._steps += 1
        step = self.recorder.end()
        same = self._last is not None and step.signature() == self._last.signature()
        self._last = step
        if self._steps >= _MOST_STEPS or (same and self._steps >= _LEAST_STEPS):
            self._write("" if same else f"no two steps of the first {self._steps} are equal; this is the last of them")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        self.recorder.begin()

    def program_ends(self):
        """Before two steps were equal."""
        if os.getpid() == self._process and self._last is not None:
            one = "it has one step, in which the optimizer makes its states"
            self._write(one if self._steps == 1 else "it ends before two steps are equal; this is the last of them")
        self._last = None

    def _write(self, reservation):
        model, batch = self._model
        note = f"op times are estimates for {os.environ.get('SENTINEL_TRACE_MACHINE', 'local')}"
        note += f"; {reservation}" if reservation else ""
        version = f"torch {self._torch.__version__}"
        command = " ".join(getattr(sys, "orig_argv", sys.argv))[:4096]
        self._last.write(os.environ["SENTINEL_TRACE"], {
            "format": "tensor-trace", "version": 1, "source": f"sentinel trace: {command}", "model": model,
            "batch": batch, "framework": version, "note": note})


def _mode_class(torch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        """Runs each op with values where all that it reads has some and what it makes is small, and without
        otherwise. What is written without values has none from then on, whatever its memory holds."""

        def __init__(self, torch, fake_tensor, fake_mode, recorder):
            super().__init__()
            self._torch, self._fake_tensor, self._fake_mode, self._recorder = torch, fake_tensor, fake_mode, recorder
            self.uniform = _trace_uniform.Uniform(torch, recorder, self.is_unknown)
            self._lost = set()  # storages that have memory, and whose values are not known any more
            self._process = os.getpid()
            self._ops = {}
            self._excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
            self._views = torch._C.DispatchKey.ADInplaceOrView
            self._device, self._detach = torch.ops.prim.device.default, torch.ops.aten.detach.default
            self._add, self._add_in_place = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
            self._sizes = {}  # of workspaces
            self._sole = None  # how often a gradient is referred to that autograd alone holds

        def is_unknown(self, tensor):
            return isinstance(tensor, self._fake_tensor) or (
                bool(self._lost) and _trace_step.has_storage(tensor) and tensor.untyped_storage()._cdata in self._lost)

        def forget(self, *tensors):
            """The mode for tensors without values notes each that it has made by a weak reference."""
            memory = self._fake_mode.fake_tensor_converter.tensor_memo
            for key, made in list(memory.items()):
                if any(made is tensor for tensor in tensors):
                    del memory[key]

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if os.getpid() != self._process:
                return func(*args, **kwargs)
            if func is self._device:
                return args[0].fake_device if isinstance(args[0], self._fake_tensor) else func(*args)
            if func is self._detach and not self._excluded(self._views):
                return self._look(func, args)  # no op of the program: autograd keeps a tensor
            if func is self._add and self._adds_up(*args):
                func = self._add_in_place
            op = self._ops.get(func)
            if op is None:
                op = self._ops[func] = _Op(torch, func)
            if op.silent:
                return self._run_fake(func, args, kwargs) if op.asks else func(*args, **kwargs)
            if op.composite:
                with self:
                    out = func.decompose(*args, **kwargs)
                if out is not NotImplemented:
                    return out
            tensors = []
            _trace_step.gather(args, torch.Tensor, tensors)
            _trace_step.gather(kwargs.values(), torch.Tensor, tensors)
            number = self._recorder.op_begins(op, tensors)
            if op.reads_value:
                out = self._value(args[0]) if self.is_unknown(args[0]) else func(*args, **kwargs)
            elif any(self.is_unknown(tensor) for tensor in tensors):
                out = self._without_values(op, func, args, kwargs)
                self.uniform.made(op.name, args, out)
            else:
                out = self._with_values(op, func, args, kwargs)
            made = []
            _trace_step.gather((out,), torch.Tensor, made)
            self._recorder.op_ends(number, op, args, kwargs, tensors, made, out)
            return out

        def _value(self, tensor):
            value = self.uniform.of(tensor)
            return _trace_values.read(torch, tensor) if value is None else value

        def _look(self, func, args):
            if not isinstance(args[0], self._fake_tensor):
                return func(*args)
            with self._fake_mode:
                return func(*args)

        def _adds_up(self, *operands):
            """Autograd adds up gradients of its own: without a mode it does so in place."""
            if len(operands) != 2 or torch._C._current_graph_task_id() == -1:
                return False
            first = operands[0]
            if not (isinstance(first, torch.Tensor) and isinstance(operands[1], torch.Tensor)):
                return False
            if not _trace_step.has_storage(first) or first.shape != operands[1].shape:
                return False
            node = torch._C._current_autograd_node()
            if node is not None and node.name().endswith("AccumulateGrad"):
                return True
            counts = first._use_count(), torch._C._storage_Use_Count(first.untyped_storage()._cdata)
            if self._sole is None:  # the calibration
                self._sole = counts
            dense = first.numel() * first.element_size() == first.untyped_storage().nbytes() and 0 not in first.stride()
            return dense and counts[0] <= self._sole[0] and counts[1] <= self._sole[1]

        def calibrate(self):
            """With a gradient that two functions make and autograd adds up."""
            with self, torch.enable_grad():
                begin = torch.ones(2, requires_grad=True)
                middle = begin * 1
                (middle.exp() + middle.cos()).sum().backward()

        def _with_values(self, op, func, args, kwargs):
            if op.writes or op.views:  # in memory that there is
                return func(*args, **kwargs)
            try:
                out = self._run_fake(func, args, kwargs)
            except _trace_values.errors(torch):
                return func(*args, **kwargs)
            except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                return func(*args, **kwargs)  # an error in the script is the op's own
            made = []
            _trace_step.gather((out,), torch.Tensor, made)
            return func(*args, **kwargs) if all(_stays_known(torch, each) for each in made) else out

        def _without_values(self, op, func, args, kwargs):
            if op.views and not isinstance(args[0], self._fake_tensor):
                return func(*args, **kwargs)
            try:
                out = self._run_fake(func, args, kwargs)
            except _trace_values.errors(torch) as error:
                _trace_values.stop_at_op(torch, op.name, error)
            if op.name == "aten::mkldnn_rnn_layer":
                out = (*out[:3], self._workspace_of_rnn(func, args, out[3]))
            written = []
            for place in op.writes:
                value = args[place] if isinstance(place, int) and place < len(args) else kwargs.get(place)
                _trace_step.gather((value,), torch.Tensor, written)
            for place in op.updates:
                _trace_step.gather(args[place:place + 1], torch.Tensor, written)
            for tensor in written:
                self.uniform.written(tensor)
                if not isinstance(tensor, self._fake_tensor) and _trace_step.has_storage(tensor):
                    self._lose(tensor.untyped_storage())
            return op.returned(out, args, kwargs)

        def _workspace_of_rnn(self, func, args, otherwise):
            """What oneDNN keeps for the backward pass, whose size only its kernel knows: of samples that have one
            step or two, from which the rest follows."""
            layer, weights, hidden = args[0], args[1:5], args[5:7]
            if sum(each.numel() * each.element_size() for each in weights) > _MOST_WEIGHTS or layer.dim() != 3:
                return otherwise
            key = repr((layer.shape[1:], [each.shape for each in weights], args[7:]))
            if key not in self._sizes:
                one = [torch.zeros(each.shape) for each in weights]
                states = [torch.zeros(each.shape) for each in hidden]
                self._sizes[key] = [func(torch.zeros(steps, *layer.shape[1:]), *one, *states, *args[7:])[3].nbytes
                                    for steps in (1, 2)]
            first, second = self._sizes[key]
            with self._fake_mode:
                return torch.empty(first + (layer.shape[0] - 1) * (second - first), dtype=torch.uint8)

        def _lose(self, storage):
            if storage._cdata not in self._lost:
                self._lost.add(storage._cdata)
                self._recorder.when_freed(storage, self._lost.discard)

        def _run_fake(self, func, args, kwargs):
            args, kwargs = self._as_fake(args), {key: self._as_fake(value) for key, value in kwargs.items()}
            with self._fake_mode:
                return func(*args, **kwargs)

        def _as_fake(self, value):
            if isinstance(value, torch.Tensor):
                return value if isinstance(value, self._fake_tensor) else self._described(value)
            if isinstance(value, (list, tuple)):
                return type(value)(self._as_fake(each) for each in value) if type(value) in (list, tuple) else value
            return value

        def _described(self, tensor):
            if not _trace_step.has_storage(tensor):
                return self._fake_mode.from_tensor(tensor)
            like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            return self._fake_tensor(self._fake_mode, like, tensor.device)

    return Mode


def _stays_known(torch, tensor):
    if tensor.device.type != "cpu":
        return False
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return tensor.numel() * tensor.element_size() <= (_KNOWN_WHOLE_BYTES if whole else _KNOWN_BYTES)


class _Op:
    """What is known of an op by its schema."""

    def __init__(self, torch, func):
        schema = func._schema
        self.name = schema.name
        self.packet = func._overloadpacket
        keyword = {argument.name: argument.kwarg_only for argument in schema.arguments}
        places = {argument.name: place for place, argument in enumerate(schema.arguments)}
        written = [argument for argument in schema.arguments
                   if argument.alias_info is not None and argument.alias_info.is_write]
        self.writes = [argument.name if keyword[argument.name] else places[argument.name] for argument in written]
        # Running statistics, which no schema calls written.
        self.updates = (3, 4) if self.name in ("aten::native_batch_norm", "aten::_native_batch_norm_legit") else ()
        aliases = [argument for argument in schema.arguments
                   if argument.alias_info is not None and not argument.alias_info.is_write]
        self.views = bool(aliases) and not written and func.namespace in ("aten", "prim")
        self.changes_view = torch.Tag.inplace_view in func.tags
        if self.changes_view:  # of sizes, and not of values
            self.views, self.writes = True, []
        self.reads_value = self.name == "aten::_local_scalar_dense"
        self.asks = func.namespace == "prim"  # of the tensor itself
        self.silent = self.asks or func.namespace == "profiler"
        self.composite = not self.silent and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd)
        # Which argument each result is, where it is one that was written.
        by_alias = {}
        for argument, place in zip(written, self.writes):
            for name in argument.alias_info.before_set:
                by_alias[name] = place
        self._returns = [next((by_alias[name] for name in (one.alias_info.before_set if one.alias_info else ())
                               if name in by_alias), None) for one in schema.returns]

    def returned(self, out, args, kwargs):
        """The program's own tensors in the place of what described them."""
        if all(place is None for place in self._returns):
            return out
        several = len(self._returns) > 1
        results = list(out) if several else [out]
        for number, place in enumerate(self._returns):
            if place is not None:
                results[number] = args[place] if isinstance(place, int) else kwargs[place]
        return tuple(results) if several else results[0]
