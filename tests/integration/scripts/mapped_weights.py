"""Trains weights that PyTorch's allocator did not give: `mapped_weights.py CASE [--width N] [--layers N]`. Prints each
loss to the last bit, what the program sees of the weights' memory by other ways, and a hash of the weights at the end;
on stderr, how many weights lie elsewhere after the first step."""
import argparse
import gc
import hashlib
import json
import math
import mmap
import os
import pathlib
import sys
import tempfile
import weakref

import numpy
import torch

import eager

STEPS = 7


class Net(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, value):
        for layer in self.layers:
            value = torch.relu(layer(value)) + value
        return self.norm(value)


def assign(model, state):
    """As load_state_dict(assign=True), which PyTorch 1.13 does not have."""
    for name, value in state.items():
        module, _, own = name.rpartition(".")
        module = model.get_submodule(module)
        if own in module._parameters:
            module._parameters[own] = torch.nn.Parameter(value, module._parameters[own].requires_grad)
        else:
            module._buffers[own] = value


def write(state, path, lead=8):
    """A file as safetensors writes it: the header's length, the header, the tensors' bytes."""
    header, at = {}, 0
    for name, value in state.items():
        size = value.numel() * value.element_size()
        header[name] = (str(value.dtype).partition(".")[2], list(value.shape), at, at + size)
        at += size
    text = json.dumps(header).encode()
    text += b" " * (lead - (len(text) + 8) % lead)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in state.values():
            file.write(value.detach().contiguous().numpy().tobytes())


def tensors_of(path, part):
    """part(begin, bytes, dtype) -> a tensor of the file's bytes."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {name: part(8 + length + begin, end - begin, getattr(torch, dtype)).reshape(shape)
            for name, (dtype, shape, begin, end) in header.items()}


def map_file(path, access=mmap.ACCESS_COPY):
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0, access=access)


def by_buffer(path, access=mmap.ACCESS_COPY, keep=None):
    memory = map_file(path, access)
    if keep is not None:
        keep.append(memory)
    return tensors_of(path, lambda begin, size, dtype: torch.frombuffer(memory, dtype=dtype, offset=begin,
                                                                       count=size // dtype_size(dtype)))


def by_slices(path, keep=None, shared=False):
    """As safetensors does it: each tensor is a part of one storage."""
    whole = torch.UntypedStorage.from_file(str(path), shared, os.path.getsize(path))
    if keep is not None:
        keep.append(whole)
    return tensors_of(path, lambda begin, size, dtype: torch.asarray(whole[begin:begin + size],
                                                                    dtype=torch.uint8).view(dtype))


def dtype_size(dtype):
    return torch.empty(0, dtype=dtype).element_size()


def arrays_of(state):
    return {name: value.detach().numpy().copy() for name, value in state.items()}


class Case:
    """What a case does; each may have what the program does between two steps, and what it looks at in the end."""

    def __init__(self, model, folder):
        self.model, self.path, self.keep = model, folder / "weights", []
        self.state = {name: value.clone() for name, value in model.state_dict().items()}
        self.between, self.after = (lambda step: None), (lambda: None)
        self.forward = model

    def written(self):
        write(self.state, self.path)
        return self.path

    # Nobody else sees the memory.

    def buffer(self):
        assign(self.model, by_buffer(self.written()))

    def slices(self):
        self.kept_state = by_slices(self.written())
        assign(self.model, self.kept_state)

    def load(self):
        torch.save(self.state, self.path)
        self.kept_state = torch.load(self.path, mmap=True, weights_only=True)
        self.model.load_state_dict(self.kept_state, assign=True)

    def load_copied(self):
        torch.save(self.state, self.path)
        self.model.load_state_dict(torch.load(self.path, mmap=True, weights_only=True))

    def safetensors(self):
        from safetensors.torch import load_file, save_file
        save_file(self.state, self.path)
        assign(self.model, load_file(self.path))

    def safe_open(self):
        from safetensors import safe_open
        from safetensors.torch import save_file
        save_file(self.state, self.path)
        with safe_open(self.path, framework="pt") as file:
            # A slice is a view of a storage of its own.
            assign(self.model, {name: file.get_slice(name)[:] if self.state[name].dim() else file.get_tensor(name)
                                for name in file.keys()})

    def from_numpy(self):
        assign(self.model, {name: torch.from_numpy(array) for name, array in arrays_of(self.state).items()})

    def memmap(self):
        """An array that maps a file for itself, and views of it."""
        numpy.save(self.path, numpy.concatenate([self.state[name].numpy().reshape(-1) for name in self.weights()]))
        assign(self.model, self.parts_of(numpy.load(f"{self.path}.npy", mmap_mode="c")))

    def one_storage(self):
        """All weights are views of one storage."""
        tensor = torch.frombuffer(bytearray(b"".join(self.state[name].numpy().tobytes() for name in self.weights())),
                                  dtype=torch.float32)
        assign(self.model, self.parts_of(tensor))

    def tied(self):
        assign(self.model, by_slices(self.written()))
        first = self.model.layers[0]
        self.model.layers[1].weight = first.weight                                # one parameter, twice
        self.model.layers[2].weight = torch.nn.Parameter(first.weight.detach().t())  # two of one storage

    def frozen(self):
        assign(self.model, by_slices(self.written()))
        for layer in self.model.layers[1:]:
            layer.requires_grad_(False)

    def frozen_objects(self):
        """Nothing that is alive now is seen by the garbage collector's lists."""
        assign(self.model, by_slices(self.written()))
        gc.freeze()

    def ddp(self):
        assign(self.model, by_slices(self.written()))
        torch.distributed.init_process_group("gloo", init_method=f"file://{self.path}.group", rank=0, world_size=1)
        self.forward = torch.nn.parallel.DistributedDataParallel(self.model)

    def no_optimizer(self):
        """The program updates the weights itself."""
        assign(self.model, by_slices(self.written()))

    # Others see it, or may.

    def open_buffer(self):
        """The program keeps the mapping, and reads the weights there."""
        assign(self.model, by_buffer(self.written(), keep=self.keep))
        self.after = lambda: hashlib.sha256(self.keep[0]).hexdigest()

    def open_storage(self):
        assign(self.model, by_slices(self.written(), keep=self.keep))
        self.after = lambda: hashlib.sha256(bytes(self.keep[0])).hexdigest()

    def shared_mapping(self):
        """Training writes into the file."""
        assign(self.model, by_buffer(self.written(), mmap.ACCESS_WRITE))
        self.after = lambda: hashlib.sha256(self.path.read_bytes()).hexdigest()

    def shared_storage(self):
        assign(self.model, by_slices(self.written(), shared=True))
        self.after = lambda: hashlib.sha256(self.path.read_bytes()).hexdigest()

    def share_memory(self):
        self.model.share_memory()
        self.after = lambda: all(weight.is_shared() for weight in self.model.parameters())

    def read_only(self):
        """It can only be read, so it is frozen."""
        assign(self.model, by_buffer(self.written(), mmap.ACCESS_READ))
        self.model.requires_grad_(False)
        del self.model.norm
        self.model.norm = torch.nn.BatchNorm1d(self.model.layers[0].in_features)

    def array_kept(self):
        """The program writes into its array, and training sees it."""
        arrays = arrays_of(self.state)
        assign(self.model, {name: torch.from_numpy(array) for name, array in arrays.items()})
        self.between = lambda step: arrays["layers.0.weight"].__imul__(1 + step / 64)
        self.after = lambda: float(arrays["layers.1.weight"].sum())

    def array_view(self):
        """An array sees a part of each weight's memory."""
        assign(self.model, by_slices(self.written()))
        views = [weight.detach()[..., :2].numpy() for weight in self.model.parameters()]
        self.between = lambda step: views[0].__imul__(1 + step / 64)
        self.after = lambda: float(views[1].sum())

    def array_of_state(self):
        """An array sees a tensor of the state dict, which is alive, too."""
        self.kept_state = by_slices(self.written())
        assign(self.model, self.kept_state)
        view = self.kept_state["layers.0.weight"].numpy()
        self.between = lambda step: view.__imul__(1 + step / 64)

    def array_weakly(self):
        arrays = arrays_of(self.state)
        seen = [weakref.ref(array) for array in arrays.values()]
        assign(self.model, {name: torch.from_numpy(array) for name, array in arrays.items()})
        del arrays
        self.after = lambda: [one() is not None for one in seen]

    def memmap_kept(self):
        numpy.save(self.path, numpy.concatenate([self.state[name].numpy().reshape(-1) for name in self.weights()]))
        array = numpy.load(f"{self.path}.npy", mmap_mode="c")
        assign(self.model, self.parts_of(array))
        self.after = lambda: float(numpy.asarray(array, dtype=numpy.float64).sum())

    def dlpack(self):
        """A capsule holds the first weight; another tensor of it is made late."""
        assign(self.model, by_slices(self.written()))
        capsule = torch.utils.dlpack.to_dlpack(self.model.layers[0].weight.detach())
        self.after = lambda: float(torch.utils.dlpack.from_dlpack(capsule).sum())

    def from_dlpack(self):
        arrays = arrays_of(self.state)
        assign(self.model, {name: torch.from_dlpack(array) if array.ndim else torch.tensor(array)
                            for name, array in arrays.items()})
        self.after = lambda: float(arrays["layers.1.weight"].sum())

    def same_array(self):
        """Two storages lie in one array, which nobody else holds."""
        array = self.state["layers.0.weight"].numpy().copy()
        for layer in self.model.layers[:2]:
            layer.weight = torch.nn.Parameter(torch.from_numpy(array))

    def slice_of_weight(self):
        """A storage lies within the first weight's."""
        assign(self.model, by_slices(self.written()))
        weight = self.model.layers[0].weight
        storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage().untyped()
        self.keep.append(storage[64:128])
        del storage
        self.after = lambda: bytes(self.keep[0]).hex()

    def late(self):
        """Another model comes after the first steps."""
        self.between = lambda step: assign(self.model, by_slices(self.written())) if step == 3 else None

    def weights(self):
        return [name for name, _ in self.model.named_parameters()]

    def parts_of(self, whole):
        at, parts = 0, {}
        for name in self.weights():
            shape = self.state[name].shape
            part = whole[at:at + math.prod(shape)]
            parts[name] = (torch.from_numpy(part) if isinstance(part, numpy.ndarray) else part).reshape(shape)
            at += math.prod(shape)
        return parts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    if args.case != "ddp":
        eager.without_compiler()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        model = Net(args.width, args.layers)
        case = Case(model, pathlib.Path(folder))
        getattr(case, args.case)()
        train(model, case, args)


def train(model, case, args):
    everything = [*model.parameters(), *model.buffers()]
    before = [one.data_ptr() for one in everything]
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9) if args.case != "no_optimizer" else None
    for step in range(STEPS):
        case.between(step)
        if args.case == "late" and step == 3:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        loss = case.forward(torch.randn(32, args.width)).square().sub(1).square().mean()
        loss.backward()
        if optimizer is None:
            with torch.no_grad():
                for weight in trained:
                    weight.sub_(weight.grad, alpha=1e-3)
                    weight.grad = None
        else:
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
        if step == 0:
            after = [one.data_ptr() for one in everything]
            moved = [one % 64 for one, other in zip(before, after) if one != other]
            assert moved == [other % 64 for one, other in zip(before, after) if one != other]
            print(f"moved {len(moved)} of {len(everything)}", file=sys.stderr)
        elif args.case != "late":
            assert after == [one.data_ptr() for one in everything]
    print("seen", case.after())
    digest = hashlib.sha256()
    for one in [*model.parameters(), *model.buffers()]:
        digest.update(one.detach().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
