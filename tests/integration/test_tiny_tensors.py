"""Very many tiny tensors: they train within a small budget to the same bits, and the plan is no worse for their number.

`tiny_tensors.py 30000` is the case that users met; this many show the same."""
import os
import pathlib

import pytest

import training

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "tiny_tensors.py"
TINY = "8000"
BUDGET = "26M"  # works on one processor; pages of their own for the first 4,096 would take 16 MiB of it


def trains_alike(sentinel, interpreter, tmp_path, *flags):
    plain = training.finish([interpreter, SCRIPT, TINY, *flags])
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        outcome = sentinel("run", "--fast", BUDGET, "--summary", summary, "--", interpreter, SCRIPT, TINY, *flags)
    finally:
        os.sched_setaffinity(0, every)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    outcome.summary = training.read_json(summary)
    assert outcome.phases()[-2:] == ["steady", "steady"]
    assert 0 < outcome.summary["peak_fast_bytes"] <= outcome.summary["fast_limit_bytes"]
    return outcome.summary


@pytest.mark.parametrize("flags", [(), ("foreach",)], ids=["one by one", "foreach"])
def test_only_ops_of_the_large_tensor_exceed_the_budget(flags, sentinel, python, tmp_path):
    summary = trains_alike(sentinel, python, tmp_path, *flags)
    assert 0 < summary["streamed_ops"] < 40  # of tens of thousands
    assert summary["planning_ms"] > 0
    # Tiny tensors stay: what moves in a step is the large one's.
    assert summary["planned_demoted_bytes"] < 30 * 24_000_000


def test_pytorch_2(sentinel, torch2, tmp_path):
    assert 0 < trains_alike(sentinel, torch2, tmp_path)["streamed_ops"] < 40
