"""Where a step ends and which phase an op is of, in trainings that call the framework in ways of their own: without an
optimizer, with gradients that are added up, with forward and backward within the optimizer's step."""
import json
import pathlib

import pytest

import training

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
STEPS = 8


@pytest.fixture
def compared(sentinel, python, tmp_path):
    """compared(case, *arguments): its summary under a limit, where it prints what it prints without."""
    def run(case, *arguments, interpreter=None, fast="40%"):
        command = [interpreter or python, CASES / case, *arguments]
        summary = tmp_path / "summary.json"
        outcome = sentinel("run", "--fast", fast, "--strict", "--summary", summary, "--", *command)
        assert outcome.status == 0, outcome.err
        assert outcome.out == training.finish(command).out and len(outcome.out.splitlines()) == STEPS
        return json.loads(summary.read_text())
    return run


@pytest.mark.parametrize("case", ["manual_sgd.py", "word_model.py", "functional.py"])
@pytest.mark.parametrize("framework", ["python", "torch1"])
def test_steps_without_an_optimizer(case, framework, compared, request):
    summary = compared(case, interpreter=request.getfixturevalue(framework))
    assert len(summary["steps"]) == STEPS - 1  # the last is not followed by another forward pass
    steady = [step for step in summary["steps"] if step["phase"] == "steady"]
    assert len(steady) >= 3 and summary["plans"] >= 1
    assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"]


@pytest.mark.parametrize("framework", ["python", "torch1"])
def test_gradients_that_are_added_up(framework, compared, request):
    summary = compared("accumulating.py", interpreter=request.getfixturevalue(framework))
    assert len(summary["steps"]) == STEPS and summary["plans"] == 1


def phases_of(sentinel, profile):
    """Of the layers of a profile: phases, and microseconds of ops in each."""
    report = sentinel("report", profile, "layers", "--format", "json")
    assert report.status == 0, report.err
    times = {}
    for layer in json.loads(report.out)["rows"]:
        times[layer["phase"]] = times.get(layer["phase"], 0) + layer["us"]
    return times


@pytest.mark.parametrize("how", ["lbfgs", "adam"])
@pytest.mark.parametrize("framework", ["python", "torch1"])
def test_passes_within_the_optimizers_step(how, framework, compared, sentinel, request, tmp_path):
    interpreter = request.getfixturevalue(framework)
    summary = compared("closures.py", how, interpreter=interpreter)
    assert len(summary["steps"]) == STEPS and summary["plans"] >= 1
    profile = tmp_path / "closure.sentinel"
    recorded = sentinel("record", "-o", profile, "--count", "ops", "--", interpreter, CASES / "closures.py", how)
    assert recorded.status == 0, recorded.err
    times = phases_of(sentinel, profile)
    assert set(times) == {"forward", "backward", "optimizer"}
    assert times["optimizer"] < times["forward"] + times["backward"]
