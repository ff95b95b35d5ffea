"""PyTorch 1.13 as Debian 12 has it, and an adaptor that is built when its PyTorch is first met. Torchvision's models and
the GPU's way in it are in test_bit_identity.py and gpu/test_torch_gpu.py."""
import pytest

SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "160", "--steps", "7"


@pytest.fixture
def empty_cache(tmp_path):
    """Nothing built earlier is found in it."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_an_adaptor_is_built_on_demand_once(python, sentinel, empty_cache):
    command = ("run", "--fast", "64M", "--", python, "-c", "import torch; print(int(torch.ones(3).sum()))")
    first, second = (sentinel(*command, env=empty_cache) for _ in range(2))
    assert (first.status, first.out, second.status, second.out) == (0, "3\n", 0, "3\n"), first.err + second.err
    assert "building the adaptor for PyTorch 2" in first.err
    assert "building the adaptor" not in second.err


@pytest.mark.parametrize("fast", [None, "20%"])
def test_bit_identity(torch1, fast, under, expect_plain):
    outcome = under(fast, SCRIPT, *FLAGS, interpreter=torch1)
    expect_plain(outcome, SCRIPT, *FLAGS, interpreter=torch1)
    assert "building the adaptor" not in outcome.err  # the build makes that of the PyTorch that it finds
    assert outcome.phases()[5:] == ["steady"] * 2
    if fast:
        assert outcome.summary["steps"][-1]["demoted_bytes"] > 0
