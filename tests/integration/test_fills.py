"""What an op fills whole is not fetched for it. What it fills in part, or is not allowed to fill, is as it was."""
import pathlib

import pytest

import training

FILLS = pathlib.Path(__file__).resolve().parent / "scripts" / "fills.py"


@pytest.mark.parametrize("fast", ["25%", "50%"])
def test_fills_leave_what_they_should(fast, sentinel, python, tmp_path):
    plain = training.finish([python, FILLS])
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", fast, "--summary", summary, "--", python, FILLS)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    assert training.read_json(summary)["steps"][-1]["demoted_bytes"] > 0


def test_gradients_filled_whole_are_outputs_alone(sentinel, python, tmp_path):
    profile, trace = tmp_path / "step.sentinel", tmp_path / "step.jsonl"
    assert sentinel("record", "-o", profile, "--", python, FILLS).status == 0
    assert sentinel("export", profile, "-o", trace).status == 0
    fills = [row for row in training.read_lines(trace) if row.get("name") == "aten::zero_"]
    whole = [row for row in fills if row["out"] and not set(row["in"]) & set(row["out"])]
    in_part = [row for row in fills if set(row["in"]) & set(row["out"])]
    assert len(whole) >= 8 + 2 and len(in_part) >= 3
