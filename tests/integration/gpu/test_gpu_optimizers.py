"""Optimizers that name all weights, gradients and moments in one op are split into groups, so that they train within a
share of a GPU's memory. As in test_torch_gpu.py no GPU takes part."""
import pytest

import training
from test_torch_gpu import TRAINING


@pytest.mark.parametrize("optimizer", ["adamw-fused", "adam-foreach", "sgd-foreach"])
def test_an_optimizer_of_all_weights_at_once_trains_in_a_share(optimizer, python, device, tmp_path):
    """Weights, gradients and moments together are more than the budget: one op that names all of them would end
    training. Gradients are clipped by their norm, too, all of them at once."""
    words = [python, TRAINING, "--width", "1024", "--batch", "64", "--optimizer", optimizer]
    plain = training.finish(words)
    assert plain.status == 0, plain.err
    summary = tmp_path / "summary.json"
    outcome = training.finish(words, env=dict(device, SENTINEL_FAST="40%", SENTINEL_SUMMARY=str(summary)))
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    told = training.read_json(summary)
    assert told["peak_fast_bytes"] <= told["fast_limit_bytes"] < told["peak_unlimited_bytes"] / 2
    steady = [step for step in told["steps"] if step["phase"] == "steady"]
    assert len(steady) >= 3 and all(step["promoted_bytes"] > 0 for step in steady)


def test_so_do_gradients_that_are_zeroed_and_clipped_at_once(python, device):
    """They alone are more than this budget."""
    words = [python, TRAINING, "--width", "1024", "--batch", "64", "--optimizer", "sgd-foreach", "--zeroed"]
    plain = training.finish(words)
    assert plain.status == 0, plain.err
    outcome = training.finish(words, env=dict(device, SENTINEL_FAST="25%"))
    assert (outcome.status, outcome.out) == (0, plain.out), outcome.err


GROUPED = """
import runpy, sys, torch
runpy.run_path(sys.argv[1])["attach"]()
import torch.optim.optimizer as optimizer
tensors = [torch.ones(1 << 20) for _ in range(10)]
groups = optimizer._group_tensors_by_device_and_dtype([tensors], with_indices=True).values()
print([indices for _, indices in groups])
"""


def test_groups_are_an_eighth_of_the_budget(python, device):
    outcome = training.finish([python, "-c", GROUPED, TRAINING], env=dict(device, SENTINEL_FAST="64M"))
    assert outcome.out == "[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]\n", outcome.err


def test_where_nobody_groups_an_optimizer_of_all_weights_is_refused(torch1, device1):
    """PyTorch 1.13 has no such function to ask."""
    words = [torch1, TRAINING, "--batch", "64", "--steps", "1"]
    outcome = training.finish([*words, "--optimizer", "adam-foreach"], env=device1)
    assert outcome.status == 1 and "Adam: how PyTorch 1.13" in outcome.err, outcome.err
    assert "give foreach=False and fused=False" in outcome.err
    outcome = training.finish([*words, "--optimizer", "sgd"], env=device1)
    assert outcome.status == 0, outcome.err


OTHER_GROUPS = """
import runpy, sys, torch
import torch.optim.optimizer as optimizer
group = optimizer._group_tensors_by_device_and_dtype
optimizer._group_tensors_by_device_and_dtype = lambda tensorlistlist, with_indices=False: {
    key: [*lists, indices] for key, (lists, indices) in group(tensorlistlist, with_indices).items()}
runpy.run_path(sys.argv[1])["attach"]()
weights = [torch.ones(4, requires_grad=True)]
for words in (dict(foreach=True), dict(fused=True), dict(), dict(foreach=False)):
    try:
        torch.optim.AdamW(weights, **words)
        print("made", words)
    except RuntimeError as error:
        print(str(error).split(",")[0])
"""


def test_where_groups_have_another_shape_it_is_refused_too(python, device):
    """As in PyTorch 2.0; there what is not said is foreach on a GPU."""
    outcome = training.finish([python, "-c", OTHER_GROUPS, TRAINING], env=device)
    assert outcome.status == 0, outcome.err
    *refused, made = outcome.out.splitlines()
    assert made == "made {'foreach': False}" and len(refused) == 3
    assert all(line.startswith("AdamW: how PyTorch 2") and line.endswith("is not known") for line in refused)
