"""Whole models train to the same bits while tensors are made again, over a drive that is so slow that plans do so.
Six of 120 are in the tests; SENTINEL_EACH_REPLAY=1 has them all, in 40 minutes."""
import itertools
import os

import pytest

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
EACH = list(itertools.product(MODELS, ("home", "auto", "capuchin", "superneurons"), ("20%", "30%", "40%")))
SOME = [("mobilenet2", "auto", "20%"), ("resnet20", "home", "40%"), ("bfloat16", "auto", "30%"), ("pads", "home", "20%"),
        ("resnet20", "capuchin", "40%"), ("mobilenet2", "superneurons", "40%")]
NOTHING_TO_REMAKE = {"lstm"}  # its backward pass is one op


@pytest.mark.parametrize("model, policy, fast", EACH if os.environ.get("SENTINEL_EACH_REPLAY") else SOME)
def test_a_model_has_the_same_bits(model, policy, fast, under, expect_plain, slow_machine):
    script, *flags = *MODELS[model], "--steps", "8", "--threads", "1"
    outcome = under(fast, script, *flags, options=("--machine", slow_machine, "--policy", policy))
    expect_plain(outcome, script, *flags)
    replays = sum(step.get("replays", 0) for step in outcome.summary["steps"])
    assert replays > 0 or "no_replays" in outcome.summary
    if fast == "40%" and policy in ("home", "auto") and model not in NOTHING_TO_REMAKE:
        assert replays > 0, outcome.summary["no_replays"]
