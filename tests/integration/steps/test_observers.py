"""What PyTorch is asked for at each op: in a step that follows a plan the op's name alone, else its operands as well."""
import json

import pytest

import training
from torch_libraries import compiled

OBSERVED = """
import ctypes, json, sys, torch
library, kind = ctypes.CDLL(sys.argv[1]), sys.argv[2]
torch.manual_seed(1)
layers = [torch.nn.Linear(1024, 1024) for _ in range(24)]
net = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
boxed, losses = [], []

def closure():
    optimizer.zero_grad(set_to_none=kind != "fills")
    value = torch.ones(64, 1024)
    for layer in layers[:12 if kind == "differs" and step == 10 else 24]:
        value = layer(value)
    loss = value.square().mean()
    loss.backward()
    boxed.append(bool(library.inputs_are_boxed()))
    return loss

for step in range(16):
    loss = optimizer.step(closure) if kind == "closure" else closure()
    if kind != "closure":
        optimizer.step()
    losses.append(float(loss.detach()).hex())
print(json.dumps({"boxed": boxed, "losses": losses}))
"""


@pytest.fixture
def observed(python, sentinel, tmp_path):
    """observed(kind): of each step, whether operands were asked for; the losses are as without Sentinel."""
    library = compiled(python, "boxing.cpp", tmp_path / "boxing.so")

    def run(kind):
        words = [python, "-c", OBSERVED, library, kind]
        plain = training.finish(words)
        summary = tmp_path / "summary.json"
        outcome = sentinel("run", "--fast", "60%", "--summary", summary, "--", *words)
        assert plain.status == outcome.status == 0, outcome.err
        told = json.loads(outcome.out)
        assert told["losses"] == json.loads(plain.out)["losses"]
        phases = [step["phase"] for step in training.read_json(summary)["steps"]]
        planned = phases.index("steady")
        assert all(told["boxed"][:planned]) and planned < 8, "warm-up and profile know operands"
        return told["boxed"][planned:]
    return run


def test_a_planned_step_is_told_by_names(observed):
    assert not any(observed("plain"))


@pytest.mark.parametrize("kind", ["fills", "closure"])
def test_operands_that_a_plan_relies_on_are_told(kind, observed):
    assert all(observed(kind))


def test_from_a_step_that_differs_on_operands_are_told(observed):
    steps = observed("differs")
    begun = steps.index(True)
    assert begun > 2 and all(steps[begun:]), "its kind may come again, and is recorded for it"
