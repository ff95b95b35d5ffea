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


WAYS = {"triton": by_triton, "extension": by_extension, "address": by_address}


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
