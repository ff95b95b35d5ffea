"""Which of the adaptor's two observers of ops PyTorch has on a GPU: the one that is told what an op uses, or, while
nothing is away, the one that is not."""
import json

import pytest

import training
from test_torch_gpu import TRAINING
from torch_libraries import compiled

OBSERVED = """
import ctypes, json, runpy, sys, threading, torch
training = runpy.run_path(sys.argv[1])
core, library = training["attach"](), ctypes.CDLL(sys.argv[2])
in_thread = training["in_thread"] if sys.argv[3] == "two" else lambda call: call()
net, seen = training["Net"](256), {}
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
boxed = lambda place: seen.__setitem__(place, bool(library.inputs_are_boxed()))
held = []

def middle(value):
    boxed("forward")
    value.register_hook(lambda gradient: boxed("backward"))
    while takes and not core.sentinel_wants_ops():
        held.append(torch.empty(1 << 20))
    if takes:
        boxed("short")
        for each in held:
            each.zero_()  # until an op names it, it stays

net.middle = middle
for step in range(24):
    takes = step == 12
    if step == 14:
        held.clear()
    optimizer.zero_grad()
    loss = net(torch.ones(256, 256)).square().mean()
    in_thread(loss.backward)
    boxed("before the border")
    optimizer.step()
    boxed("after it")
    print(json.dumps(seen))
    seen.clear()
"""


@pytest.mark.parametrize("threads", ["one", "two"])
def test_observers_are_exchanged_at_a_steps_border_and_back(threads, python, device, tmp_path):
    """No input is boxed from a border on until memory gets short, and again from a later border on."""
    library = compiled(python, "boxing.cpp", tmp_path / "boxing.so")
    outcome = training.finish([python, "-c", OBSERVED, TRAINING, library, threads],
                              env=dict(device, SENTINEL_FAST="128M"))
    assert outcome.status == 0, outcome.err
    steps = [json.loads(line) for line in outcome.out.splitlines()]
    told = {"forward": True, "backward": True, "before the border": True, "after it": True}
    untold = dict.fromkeys(told, False)
    border = {**told, "after it": False}
    begun = steps.index(border)
    assert 2 <= begun < 12 and steps[:begun] == [told] * begun
    assert steps[begun + 1:12] == [untold] * (11 - begun)
    assert steps[12] == {"forward": False, "short": True, "backward": True, "before the border": True, "after it": True}
    again = steps.index(border, 13)
    assert steps[13:again] == [told] * (again - 13) and steps[again + 1:] == [untold] * (23 - again) and again < 22
