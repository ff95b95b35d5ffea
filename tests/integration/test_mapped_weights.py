"""Weights in memory that PyTorch's allocator did not give: what nobody else can reach is brought into the arena before
the first step, the rest stays where it is. The numbers, and what the program sees, are the plain training's."""
import json
import pathlib

import pytest

import training

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "mapped_weights.py"
ALL, WEIGHTS = 13, 10  # with the buffers of a normalisation, and without
SHARED, REACHABLE, LATE = "files or other processes see", "something else may use it", "after the first step"
UNKNOWN = "it is not known whose memory it is"

BROUGHT = {"buffer": ALL, "slices": ALL, "from_numpy": ALL, "memmap": WEIGHTS, "one_storage": WEIGHTS, "tied": ALL - 1,
           "frozen": ALL, "ddp": ALL, "no_optimizer": ALL, "load": ALL}
# How many are brought all the same, and why the others are not.
LEFT_ALONE = {"open_buffer": (0, REACHABLE), "open_storage": (0, REACHABLE), "array_kept": (0, REACHABLE),
              "array_view": (ALL - WEIGHTS, REACHABLE), "array_of_state": (ALL - 1, REACHABLE),
              "array_weakly": (0, REACHABLE), "memmap_kept": (0, REACHABLE), "dlpack": (ALL - 1, REACHABLE),
              "same_array": (0, REACHABLE), "slice_of_weight": (ALL - 1, REACHABLE), "shared_mapping": (0, SHARED),
              "shared_storage": (0, SHARED), "share_memory": (0, SHARED), "read_only": (0, SHARED),
              "from_dlpack": (0, UNKNOWN), "late": (0, LATE)}
LARGE = "--width", "1024", "--layers", "12"
LARGE_BYTES = 12 * 4 << 20


@pytest.fixture
def both(sentinel, tmp_path):
    """both(interpreter, fast, case): what it left under Sentinel; its output is the plain training's."""
    def run(interpreter, fast, case, *flags):
        summary = tmp_path / "summary.json"
        plain = training.finish([interpreter, SCRIPT, case, *flags])
        assert plain.status == 0, plain.err
        assert "moved 0 of" in plain.err
        outcome = sentinel("run", "--fast", fast, "--summary", summary, "--", interpreter, SCRIPT, case, *flags)
        assert outcome.status == 0, outcome.err
        assert outcome.out == plain.out
        outcome.summary = training.read_json(summary)
        return outcome
    return run


# PyTorch 1.13 counts what holds a tensor in another way.
CASES = [("python", case) for case in [*BROUGHT, *LEFT_ALONE]] + [
    ("torch1", case) for case in ["buffer", "slices", "from_numpy", "tied", "array_kept", "dlpack", "slice_of_weight"]]


@pytest.mark.parametrize("version, case", [one for one in CASES if one[1] in BROUGHT])
def test_what_nobody_else_reaches_is_brought(version, case, request, both):
    outcome = both(request.getfixturevalue(version), "64M", case)
    assert f"moved {BROUGHT[case]} of" in outcome.err
    assert "stay outside of the budget" not in outcome.err


@pytest.mark.parametrize("version, case", [one for one in CASES if one[1] in LEFT_ALONE])
def test_what_others_may_reach_is_left_alone(version, case, request, both):
    moved, reason = LEFT_ALONE[case]
    outcome = both(request.getfixturevalue(version), "64M", case)
    assert f"moved {moved} of" in outcome.err
    told = [line for line in outcome.err.splitlines() if "stay outside of the budget" in line]
    assert len(told) == 1 and reason in told[0], outcome.err


def test_objects_that_the_collector_does_not_list_are_not_guessed(python, both):
    """gc.freeze() hides the buffers' own tensors; of the weights no other tensor is alive."""
    outcome = both(python, "64M", "frozen_objects")
    assert f"moved {WEIGHTS} of" in outcome.err or f"moved {ALL} of" in outcome.err


def test_weights_that_are_copied_are_ordinary(python, both):
    outcome = both(python, "64M", "load_copied")
    assert "moved 0 of" in outcome.err
    assert "stay outside of the budget" not in outcome.err


@pytest.mark.parametrize("case", ["slices", "load", "from_numpy"])
def test_the_budget_holds_them(case, python, both, sentinel, tmp_path):
    summary = both(python, "40%", case, *LARGE).summary
    # Weights, their gradients and the optimizer's momentum.
    assert summary["peak_unlimited_bytes"] > 3 * LARGE_BYTES
    assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"] < 2 * LARGE_BYTES
    assert summary["steps"][-1]["demoted_bytes"] > LARGE_BYTES / 2
    profile = tmp_path / "step.sentinel"
    recorded = sentinel("record", "-o", profile, "--", python, SCRIPT, case, *LARGE)
    assert recorded.status == 0, recorded.err
    report = sentinel("report", profile, "summary", "--format", "json")
    assert json.loads(report.out)["foreign_tensors"] == 0, report.out


def test_of_what_is_left_alone_the_profile_tells(python, sentinel, tmp_path):
    profile = tmp_path / "step.sentinel"
    assert sentinel("record", "-o", profile, "--", python, SCRIPT, "open_buffer").status == 0
    report = sentinel("report", profile, "summary", "--format", "json")
    assert json.loads(report.out)["foreign_tensors"] >= WEIGHTS, report.out
