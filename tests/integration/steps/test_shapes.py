"""Batches that are padded to their longest sample: nearly every step has sizes of its own, and one plan serves all."""

BERT = ("bert_mlm.py", "--layers", "2", "--hidden", "256", "--heads", "4", "--batch", "4", "--seq", "256",
        "--vocab", "8000", "--steps", "45")
SETTLED = 20  # steps after which most large batches have been seen


def faults(outcome):
    """Demand faults a step, once the training has settled."""
    steps = outcome.summary["steps"][SETTLED:]
    assert {step["phase"] for step in steps} == {"steady"}
    return sum(step["demand_faults"] for step in steps) / len(steps)


def test_padded_steps_follow_a_plan(plain, under, expect_same):
    """By demand such a step has tens of faults: the warm-up steps show how many."""
    fixed = under("40%", *BERT, "--pad", "all")
    expect_same(plain(*BERT, "--pad", "all"), fixed)
    padded = under(fixed.summary["fast_limit_bytes"], *BERT, "--pad", "longest")
    expect_same(plain(*BERT, "--pad", "longest"), padded)
    assert padded.summary["plans"] == 1
    moved = {step["promoted_bytes"] for step in padded.summary["steps"][SETTLED:]}
    assert len(moved) > 5, "the sizes do differ"
    by_demand = max(step["demand_faults"] for step in padded.summary["steps"][1:3])
    assert by_demand > 20
    assert faults(padded) < by_demand / 2
