"""Training under Sentinel gives the numbers of the plain training, to the last bit, whatever the
budget; and it is in its steady phase by the sixth step. Operators have two threads. Torchvision's models are trained by
Debian's PyTorch 1.13, which comes with them, the others by PyTorch 2.x."""
import pytest

STEPS = ("--steps", "7", "--threads", "2")
TRAININGS = {
    "resnet": ("resnet_cifar.py", "--depth", "20", "--batch", "160"),
    "bert": ("bert_mlm.py", "--layers", "2", "--hidden", "256", "--heads", "4", "--batch", "16", "--seq", "128",
             "--vocab", "4000"),
    "lstm": ("lstm_lm.py", "--hidden", "512", "--batch", "20", "--vocab", "6000"),
    "dcgan": ("dcgan.py", "--batch", "40"),
    "mobilenet": ("mobilenet.py", "--batch", "64"),
    "torchvision-resnet50": ("torchvision_models.py", "--model", "resnet50", "--batch", "2"),
    "torchvision-mobilenet_v2": ("torchvision_models.py", "--model", "mobilenet_v2", "--batch", "4"),
    "torchvision-vgg16": ("torchvision_models.py", "--model", "vgg16", "--batch", "1"),
}


LARGER = {  # once each: their plain runs take long
    "vit_b_16": ("torchvision_models.py", "--model", "vit_b_16", "--batch", "1"),
    "inception_v3": ("torchvision_models.py", "--model", "inception_v3", "--batch", "2"),
}


@pytest.fixture(params=TRAININGS, scope="module")
def trained(request):
    """A training and its interpreter."""
    script, *flags = *TRAININGS[request.param], *STEPS
    return script, flags, request.getfixturevalue("torch1" if script == "torchvision_models.py" else "python")


def test_unlimited(trained, under, expect_plain):
    script, flags, interpreter = trained
    outcome = under(None, script, *flags, interpreter=interpreter)
    expect_plain(outcome, script, *flags, interpreter=interpreter)
    assert outcome.phases()[5:] == ["steady"] * 2
    assert sum(step["demoted_bytes"] for step in outcome.summary["steps"]) == 0


@pytest.mark.parametrize("fast", ["20%", "40%"])
def test_share_of_the_peak(trained, fast, under, expect_plain):
    script, flags, interpreter = trained
    outcome = under(fast, script, *flags, interpreter=interpreter)
    expect_plain(outcome, script, *flags, interpreter=interpreter)
    assert outcome.phases()[5:] == ["steady"] * 2
    assert outcome.phases().count("profile") == 1
    summary = outcome.summary
    share = int(fast.rstrip("%")) / 100
    assert summary["fast_limit_bytes"] == pytest.approx(share * summary["peak_unlimited_bytes"], rel=1e-6)
    # Something did leave memory, and came back.
    assert all(step["demoted_bytes"] and step["promoted_bytes"] for step in summary["steps"][5:])


@pytest.mark.parametrize("model", LARGER)
def test_larger_models(model, torch1, plain, under, expect_same):
    script, *flags = *LARGER[model], *STEPS
    expect_same(plain(script, *flags, interpreter=torch1), under("40%", script, *flags, interpreter=torch1))
