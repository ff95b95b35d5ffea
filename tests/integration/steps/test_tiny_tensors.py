"""Very many tiny tensors: they train within a small budget to the same bits, and the plan is no worse for their number.

`tiny_tensors.py 30000` is the case that users met; this many show the same."""
import os
import pathlib

import pytest

import training

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "tiny_tensors.py"
TINY = "8000"
DEPTH = 4
# Little more than the smallest that works: the moves in flight, and four blocks for each processor. Pages of their own
# for the first 4,096 tensors would take 16 MiB of it.
BUDGET = f"{2 * DEPTH + 8 * os.cpu_count() + 2}M"


def trains_alike(sentinel, interpreter, tmp_path, *flags):
    plain = training.finish([interpreter, SCRIPT, TINY, *flags])
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", BUDGET, "--depth", str(DEPTH), "--summary", summary, "--", interpreter, SCRIPT,
                       TINY, *flags)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    outcome.summary = training.read_json(summary)
    assert outcome.phases()[-2:] == ["steady", "steady"]
    assert 0 < outcome.summary["peak_fast_bytes"] <= outcome.summary["fast_limit_bytes"]
    return outcome.summary


@pytest.mark.parametrize("flags", [(), ("foreach",)], ids=["one by one", "foreach"])
def test_only_ops_of_the_large_tensor_exceed_the_budget(flags, sentinel, python, tmp_path):
    summary = trains_alike(sentinel, python, tmp_path, *flags)
    assert summary["streamed_ops"] < 40  # of tens of thousands
    assert summary["planning_ms"] > 0
    # Tiny tensors stay: what moves in a step is the large one's.
    assert summary["planned_demoted_bytes"] < 30 * 24_000_000
    assert summary["predicted_in_bytes"] > 0 and summary["predicted_out_bytes"] > 0


def test_pytorch_1(sentinel, torch1, tmp_path):
    assert trains_alike(sentinel, torch1, tmp_path)["streamed_ops"] < 40
