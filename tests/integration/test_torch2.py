"""PyTorch 2.x: the adaptor is built for it when it is first met, and the numbers stay the same."""
import pytest

import training

SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "160", "--steps", "7"


@pytest.fixture
def empty_cache(tmp_path):
    """Nothing built earlier is found in it."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_built_on_demand_once(torch2, sentinel, empty_cache):
    command = ("run", "--fast", "64M", "--", torch2, "-c", "import torch; print(int(torch.ones(3).sum()))")
    first, second = (sentinel(*command, env=empty_cache) for _ in range(2))
    assert (first.status, first.out, second.status, second.out) == (0, "3\n", 0, "3\n"), first.err + second.err
    assert "building the adaptor for PyTorch 2" in first.err
    assert "building the adaptor" not in second.err


@pytest.mark.parametrize("fast", [None, "20%"])
def test_bit_identity(torch2, fast, plain, under, expect_same):
    first = plain(SCRIPT, *FLAGS, interpreter=torch2)
    second = plain(SCRIPT, *FLAGS, interpreter=torch2, again=True)
    difference = training.compare(first, second)
    if difference:
        pytest.skip(f"not comparable: two plain runs differ ({difference.strip()})")
    outcome = under(fast, SCRIPT, *FLAGS, interpreter=torch2)
    expect_same(first, outcome)
    assert outcome.phases()[5:] == ["steady"] * 2
    if fast:
        assert outcome.summary["steps"][-1]["demoted_bytes"] > 0
