"""Trains a net between whose layers kernels run that PyTorch's dispatcher does not launch, on tables that no op names
after they are made. Like gpu_training.py it trains in the memory of the tests' driver with ADAPTOR, and prints losses
to the last bit: by Triton's launcher (a stand-in's), by a C++ extension's function, or with addresses that were asked
for once."""
import argparse
import ctypes
import hashlib
import operator
import os
import types

import numpy
import torch

import eager
import gpu_training

WIDTH, BATCH, DEPTH, STEPS = 512, 1024, 16, 8


def array(address):
    return numpy.ctypeslib.as_array((ctypes.c_float * (WIDTH * BATCH)).from_address(address))


def multiply(out, value, table):
    """The kernel: of addresses."""
    numpy.multiply(array(value), array(table), out=array(out))


def by_triton():
    from triton.runtime import jit
    kernel = jit.JITFunction(multiply)
    return lambda out, value, table: kernel[(1,)](out, value, table)


def by_compiled():
    """By Triton's compiled kernel, in the first step on the thread's stream and then on one that is named."""
    from triton.compiler import compiler
    kernel, calls = compiler.CompiledKernel(multiply), []

    def call(out, value, table):
        calls.append(None)
        kernel[(1,)](out, value, table, **(dict(stream=7) if len(calls) > 2 * DEPTH else {}))
    return call


def by_module(way):
    """By what a module offers that is compiled against PyTorch (gpu_extension.cpp)."""
    def imported():
        import gpu_extension
        return {"function": lambda: gpu_extension.multiply, "inner": lambda: gpu_extension.inner.multiply,
                "static": lambda: gpu_extension.Multiplier.at_once}[way]()
    return imported


def by_method():
    """An object keeps the table that its first call was given; what it is given later is a copy that nobody else has."""
    import gpu_extension
    known = {}

    def call(out, value, table):
        if id(table) not in known:
            known[id(table)] = gpu_extension.Multiplier()
            known[id(table)].keep(table)
        made = torch.empty_like(out)
        known[id(table)].multiply(made, value.clone())
        out.copy_(made)
    return call


def by_extension():
    extension = types.ModuleType("extension")
    extension.call = operator.call if hasattr(operator, "call") else map  # a function of C's
    in_c = lambda out, value, table: multiply(*map(address_in_c, (out, value, table)))
    address_in_c = torch._C._TensorBase.data_ptr if "ADAPTOR" in os.environ else torch.Tensor.data_ptr
    if "ADAPTOR" in os.environ:
        from sentinel import _torch_gpu
        _torch_gpu.tell_extension(gpu_training.launches, extension)
    return lambda out, value, table: extension.call(in_c, out, value, table)


def by_address():
    """Of the tables once; of what is made and read, of copies that nobody else has."""
    known = {}

    def call(out, value, table):
        if id(table) not in known:
            known[id(table)] = table.data_ptr()
        made, read = torch.empty_like(out), value.clone()
        multiply(made.data_ptr(), read.data_ptr(), known[id(table)])
        out.copy_(made)
    return call


WAYS = {"triton": by_triton, "compiled": by_compiled, "extension": by_extension, "address": by_address,
        "method": by_method, **{way: by_module(way) for way in ("function", "inner", "static")}}


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(context, value, table, call):
        context.save_for_backward(table)
        context.call = call
        out = torch.empty_like(value)
        call(out, value, table)
        return out

    @staticmethod
    def backward(context, gradient):
        out = torch.empty_like(gradient)
        context.call(out, gradient.contiguous(), *context.saved_tensors)
        return out, None, None


class Net(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.tables = [torch.rand(BATCH, WIDTH) + 0.5 for _ in range(DEPTH)]
        self.call = call

    def forward(self, value):
        for layer, table in zip(self.layers, self.tables):
            value = Multiplied.apply(torch.relu(layer(value)), table, self.call) + value
        return value


def main():
    eager.without_compiler()
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    way = parser.parse_args().way
    core = gpu_training.attach() if "ADAPTOR" in os.environ else None
    torch.manual_seed(1)
    model = Net(WAYS[way]())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(BATCH, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
    if core:
        core.sentinel_unsupported(b"reading a tensor without an op")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
