"""import sentinel: the step to profile and its layers said by the program."""
import json
import pathlib
import re
import textwrap

import pytest

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/guide/your-own-script.md"
MODEL = """
import os, threading, torch
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(3)])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.randn(40, 300)
loss = lambda x: (x * x).mean()
def train():
    optimizer.zero_grad()
    loss(model(data)).backward()
    optimizer.step()
"""
RESULT = "print('result', float(sum(p.double().sum() for p in model.parameters())).hex())\n"


def guide_example():
    code = re.search(r"```python\nimport sentinel\n(.*?)```", GUIDE.read_text(), re.S)[1]
    return textwrap.indent("x = data; optimizer.zero_grad()\n" + code, "        ")


@pytest.fixture
def trained(sentinel, python, tmp_path):
    """trained(verb, steps): what the verb makes of a program of these steps: its result, its files."""
    def run(verb, steps, *options):
        script = tmp_path / "marked.py"
        script.write_text(MODEL + steps + RESULT)
        plain = sentinel("record", "--count", "ops", "-o", tmp_path / "plain", "--", python, script)
        outcome = sentinel(verb, *options, "-o", tmp_path / "marked", "--", python, script)
        assert outcome.status == 0, outcome.err
        assert re.findall("result.*", outcome.out) == re.findall("result.*", plain.out) != []
        return outcome
    return run


@pytest.fixture
def view(sentinel, tmp_path):
    def run(name):
        outcome = sentinel("report", tmp_path / "marked", name, "--rows", "0", "--format", "json")
        assert outcome.status == 0, outcome.err
        return json.loads(outcome.out)
    return run


@pytest.mark.parametrize("at", [0, 1, 2, 3, 6])
def test_the_example_of_the_guide(at, trained, view):
    """The optimizer steps within the bracket, at whatever step of the training."""
    trained("record", f"import sentinel\nfor step in range(8):\n    if step == {at}:\n{guide_example()}"
                      "    else: train()\n")
    assert {row["name"] for row in view("layers")["rows"]} == {f"layer {n}" for n in (1, 2, 3, 4)}
    tensors = view("tensors")["rows"]
    assert sum(row["bytes"] == 300 * 300 * 4 for row in tensors) >= 6  # weights and gradients
    assert sum(row["hotness"] > 0 for row in tensors) > len(tensors) / 2


@pytest.mark.parametrize("at", [0, 3, 7])
def test_marks_under_a_plan(at, trained, tmp_path):
    summary = tmp_path / "summary.json"
    trained("run", "import sentinel\nfor step in range(16):\n"
                   f"    if step >= {at} and step % 2:\n        with sentinel.profile(): train()\n"
                   "    else: train()\n", "--summary", summary)
    assert json.loads(summary.read_text())["plans"] <= 2


def test_the_model_is_named(trained, sentinel, tmp_path):
    trained("record", "for step in range(5): train()\n")
    summary = sentinel("report", tmp_path / "marked", "summary").out
    assert "Sequential, batch 40" in summary and " Linux Linux " not in summary


def test_a_fork_within_the_bracket(trained, sentinel, tmp_path):
    """Counting ends there; the profile is whole all the same and says what it counts."""
    outcome = trained("record", "import sentinel\nfor step in range(3):\n    with sentinel.profile():\n"
                                "        train()\n        if os.fork() == 0: os._exit(0)\n        os.wait()\n")
    assert "op inputs and outputs are taken" in outcome.err
    assert "no memory accesses counted" in sentinel("report", tmp_path / "marked", "summary").out


def test_forks_in_every_step(trained, sentinel, tmp_path):
    trained("record", "for step in range(8):\n    if os.fork() == 0: os._exit(0)\n    os.wait(); train()\n")
    assert "no memory accesses counted" in sentinel("report", tmp_path / "marked", "summary").out


def test_ops_of_another_thread(trained):
    """It computes gradients of its own all the time."""
    trained("record", "def other():\n    weight = torch.ones(100, requires_grad=True)\n"
                      "    while not done: (weight * 2).sum().backward()\n"
                      "done = False\nthread = threading.Thread(target=other)\nthread.start()\n"
                      "for step in range(30): train()\ndone = True\nthread.join()\n")


def test_a_module_of_the_programs_own_comes_first(sentinel, python, tmp_path):
    (tmp_path / "sentinel.py").write_text("augment = 7\n")
    script = tmp_path / "train.py"
    script.write_text("import torch, sentinel\nprint(sentinel.augment, sentinel.__file__)\n")
    outcome = sentinel("run", "--fast", "64M", "--", python, script)
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"7 {tmp_path}/sentinel.py\n"


def test_a_folder_of_that_name_is_no_module(sentinel, python, tmp_path):
    (tmp_path / "sentinel").mkdir()
    script = tmp_path / "train.py"
    script.write_text("import torch, sentinel\nfrom sentinel import _torch\nprint(callable(sentinel.profile))\n")
    outcome = sentinel("run", "--fast", "64M", "--", python, script)
    assert outcome.status == 0, outcome.err
    assert outcome.out == "True\n"
