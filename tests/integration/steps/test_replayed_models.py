"""Whole models train to the same bits while tensors are made again, over a drive that is so slow that plans do so."""
import itertools
import os
import subprocess

import pytest

import training

BERT = ("bert_mlm.py", "--layers", "2", "--hidden", "256", "--heads", "4", "--batch", "8", "--vocab", "4000")
MODELS = {
    "resnet20": ("resnet_cifar.py", "--depth", "20", "--batch", "64"),
    "resnet32": ("resnet_cifar.py", "--depth", "32", "--batch", "48"),
    "mobilenet1": ("mobilenet.py", "--version", "1", "--batch", "32"),
    "mobilenet2": ("mobilenet.py", "--version", "2", "--batch", "24"),
    "bert": (*BERT, "--dropout", "0"),
    "lstm": ("lstm_lm.py", "--hidden", "512", "--batch", "20", "--vocab", "6000"),
    "dcgan": ("dcgan.py", "--batch", "40"),
    "dropout": BERT,
    "bfloat16": (*BERT, "--bfloat16"),
    "pads": (*BERT, "--pad", "longest"),
}
EACH = list(itertools.product(MODELS, ("home", "auto"), ("20%", "30%", "40%")))
AT_ONCE = 4  # of them in a run of the tests; SENTINEL_EACH_REPLAY=1 has all of them
NOTHING_TO_REMAKE = {"lstm"}  # its backward pass is one op


def chosen():
    """By the commit: each run of a commit has the same ones, and few commits have them all."""
    if os.environ.get("SENTINEL_EACH_REPLAY"):
        return EACH
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=os.path.dirname(__file__), capture_output=True, text=True)
    first = int(asked.stdout.strip()[:8] or "0", 16) if asked.returncode == 0 else 0
    return [EACH[(first + at * 17) % len(EACH)] for at in range(AT_ONCE)]


@pytest.mark.parametrize("model, policy, fast", chosen())
def test_a_model_has_the_same_bits(model, policy, fast, under, expect_plain, slow_machine):
    script, *flags = *MODELS[model], "--steps", "8", "--threads", "1"
    outcome = under(fast, script, *flags, options=("--machine", slow_machine, "--policy", policy))
    expect_plain(outcome, script, *flags)
    replays = sum(step.get("replays", 0) for step in outcome.summary["steps"])
    assert replays > 0 or "no_replays" in outcome.summary
    if fast == "40%" and model not in NOTHING_TO_REMAKE:
        assert replays > 0, outcome.summary["no_replays"]
