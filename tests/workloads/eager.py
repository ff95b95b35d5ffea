"""PyTorch 2 without its compiler. Optimizers import torch._dynamo for two functions that do nothing in a program that
compiles nothing. This import takes over a second of processor time, half of a small training's. A program that asks the
compiler for more ends with an error."""

import sys
import types

import torch


def _same(function, *_, **__):
    return function


def _nothing(*_, **__):
    pass


def without_compiler():
    if torch.__version__ < "2" or "torch._dynamo" in sys.modules:
        return
    torch._dynamo = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
    torch._dynamo.disable, torch._dynamo.graph_break = _same, _nothing


def be_deterministic():
    """As torch.use_deterministic_algorithms(True, warn_only=True), which imports the compiler too."""
    torch._C._set_deterministic_algorithms(True, warn_only=True)
