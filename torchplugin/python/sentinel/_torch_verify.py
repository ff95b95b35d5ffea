"""The witness of `sentinel verify`: hashes parameters, gradients and optimizer states after each optimizer's step, and
ends the program after as many steps as were asked for. It runs no op: what it hashes are the bytes of storages."""
import ctypes
import hashlib
import itertools
import os
import sys
import weakref

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def _open():
    """A file of this process alone: of its rank, its place among those that multiprocessing spawned, and among those
    that the command runs one after the other."""
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    spawned = os.environ.get("SENTINEL_SPAWNED")
    place = f"{os.environ['SENTINEL_WITNESS']}.rank{rank}" + (f".spawned{spawned}" if spawned else "")
    for number in itertools.count(1):
        try:
            return open(place if number == 1 else f"{place}.run{number}", "x")
        except FileExistsError:
            continue


class Witness:
    def __init__(self, torch, ends, is_compiling):
        """`ends()`: the program is about to end."""
        self._torch, self._is_compiling = torch, is_compiling
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self._storage_of = getattr(base, "untyped_storage", None) or torch.Tensor.storage
        self._ends, self._process = ends, os.getpid()
        self._left = int(os.environ["SENTINEL_WITNESS_STEPS"])
        self._step = 0
        self._file = None
        self._models, self._known = [], weakref.WeakSet()
        torch.nn.modules.module.register_module_forward_pre_hook(self._called)

    def _called(self, module, inputs):
        """The first of its modules that is called is the model."""
        if self._is_compiling() or module in self._known:
            return
        self._models.append(weakref.ref(module))
        self._known.update(module.modules())

    def _names(self):
        names = {}
        for model in self._models:
            if model() is not None:
                for name, parameter in model().named_parameters():
                    names.setdefault(id(parameter), name)
        return names

    def stepped(self, optimizer):
        if os.getpid() != self._process:  # a child's
            return
        if self._file is None:
            self._file = _open()
        self._step += 1
        names = self._names()
        for group, settings in enumerate(optimizer.param_groups):
            for number, parameter in enumerate(settings["params"]):
                name = names.get(id(parameter), f"number {number} of group {group}")
                if parameter.grad is not None:  # first what others come from
                    self._write(f"gradient of {name}", parameter.grad)
                for key, value in optimizer.state.get(parameter, {}).items():
                    self._write_state(f"{key} of {name}", value)
                self._write(f"parameter {name}", parameter)
        for model in self._models:
            for name, buffer in model().named_buffers() if model() is not None else ():
                self._write(f"buffer {name}", buffer)
        self._file.flush()
        self._left -= 1
        if self._left == 0:
            self._end()

    def _write_state(self, name, value):
        """A tensor, or what holds some: LBFGS keeps lists."""
        if isinstance(value, self._torch.Tensor):
            self._write(name, value)
        elif isinstance(value, dict):
            for key, each in value.items():
                self._write_state(f"{key} in {name}", each)
        elif isinstance(value, (list, tuple)):
            for number, each in enumerate(value):
                self._write_state(f"number {number} in {name}", each)

    def _write(self, name, tensor):
        name = "".join(c if c.isprintable() else "?" for c in name)
        self._file.write(f"{self._step}\t{name}\t{self._hash(tensor)}\n")

    def _hash(self, tensor):
        tensor = tensor.detach()
        if hasattr(tensor, "to_local"):  # sharded: this rank's part
            tensor = tensor.to_local()
        if tensor.layout != self._torch.strided:
            tensor = tensor.to_dense()
        if tensor.device.type != "cpu":
            tensor = tensor.cpu()
        storage = self._storage_of(tensor)
        size = storage.nbytes() if hasattr(storage, "nbytes") else len(storage) * storage.element_size()
        if tensor.numel() * tensor.element_size() != size:
            tensor = tensor.contiguous().clone()
            storage = self._storage_of(tensor)
            size = tensor.numel() * tensor.element_size()
        digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=16)
        digest.update((ctypes.c_char * size).from_address(self._address_in(storage)) if size else b"")
        return digest.hexdigest()

    def _address_in(self, storage):
        """The program has not asked for it: nobody is told that it was."""
        return self._torch._C.StorageBase.data_ptr(getattr(storage, "_storage", storage))

    def _end(self):
        self._file.close()
        self._ends()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
