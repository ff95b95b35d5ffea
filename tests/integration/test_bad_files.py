"""Files that are not what they should be: each is refused with its name and the reason, before any
training, and no run ends with a wrong number."""
import pathlib

import pytest

from training import WORKLOADS

SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "160", "--steps", "7"
OTHER = ("mobilenet.py", "--batch", "16", "--steps", "5", "--width", "0.5")
FAILED, OWN_FAILURE = 1, 125


def truncated(content):
    return content[:len(content) // 3]


def header_lost(content):
    return b"\0" * 100 + content[100:]


def middle_overwritten(content):
    third = len(content) // 3
    return content[:third] + b"\xa5" * third + content[2 * third:]


def empty(_):
    return b""


def text(_):
    return b"not a profile\n" * 100


DAMAGES = [truncated, header_lost, middle_overwritten, empty, text]


@pytest.fixture(params=DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def damaged(request, profile_of, tmp_path):
    file = tmp_path / "damaged.sentinel"
    file.write_bytes(request.param(profile_of(SCRIPT, *FLAGS).read_bytes()))
    return file


@pytest.mark.parametrize("view", ["summary", "heatmap"])
def test_report_of_a_damaged_profile(damaged, view, sentinel):
    outcome = sentinel("report", damaged, view)
    assert outcome.status == FAILED
    assert damaged.name in outcome.err and outcome.out == ""


def test_run_from_a_damaged_profile(damaged, sentinel, python):
    outcome = sentinel("run", "--fast", "20%", "--profile", damaged, "--", python, "-c", "print('started')")
    assert outcome.status == OWN_FAILURE
    assert damaged.name in outcome.err and "started" not in outcome.out


def test_a_missing_profile(sentinel, python, tmp_path):
    missing = tmp_path / "missing.sentinel"
    assert sentinel("report", missing).status == FAILED
    outcome = sentinel("run", "--profile", missing, "--", python, "-c", "print('started')")
    assert outcome.status == OWN_FAILURE and "missing.sentinel" in outcome.err and outcome.out == ""


def test_the_undamaged_one(profile_of, under, plain, expect_same):
    """What the cases above damage is good: the limit holds from the first step."""
    outcome = under("20%", SCRIPT, *FLAGS, options=("--profile", profile_of(SCRIPT, *FLAGS)))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert "profile" not in outcome.phases() and outcome.phases()[-1] == "steady"


def test_the_profile_of_another_model(profile_of, under, plain, expect_same):
    outcome = under("100M", SCRIPT, *FLAGS, options=("--profile", profile_of(*OTHER)))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert "profiling again" in outcome.err and "profile" in outcome.phases()


def test_a_profile_of_part_of_a_step(sentinel, python, under, plain, expect_same, tmp_path):
    cut = tmp_path / "cut.sentinel"
    recorded = sentinel("record", "-o", cut, "--", python, WORKLOADS / SCRIPT, *FLAGS, "--steps", "3")
    assert recorded.status == 0 and "cut.sentinel is incomplete" in recorded.err, recorded.err
    outcome = under("100M", SCRIPT, *FLAGS, options=("--profile", cut))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert "cut.sentinel is incomplete" in outcome.err and "profile" in outcome.phases()


@pytest.fixture
def plan_of(sentinel, profile_of, tmp_path):
    def plan(fast, *training):
        file = tmp_path / "plan.sentinel"
        outcome = sentinel("plan", profile_of(*training), "--fast", fast, "--policy", "sentinel", "-o", file)
        assert outcome.status == 0, outcome.err
        return file
    return plan


def test_a_plan(plan_of, under, plain, expect_same):
    outcome = under(None, SCRIPT, *FLAGS, options=("--plan", plan_of("20%", SCRIPT, *FLAGS)))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert outcome.summary["fast_limit_bytes"] > 0
    assert "profile" not in outcome.phases() and outcome.phases()[-1] == "steady"


def test_the_plan_of_another_model(plan_of, under):
    outcome = under(None, SCRIPT, *FLAGS, options=("--plan", plan_of("64M", *OTHER)))
    assert outcome.status == OWN_FAILURE
    assert "made for another model" in outcome.err
    assert outcome.record is None


def test_a_plan_whose_profile_has_gone(plan_of, sentinel, python, profile_of, tmp_path):
    plan = plan_of("20%", SCRIPT, *FLAGS)
    profile = profile_of(SCRIPT, *FLAGS)
    away = pathlib.Path(f"{profile}.away")
    profile.rename(away)
    try:
        outcome = sentinel("run", "--plan", plan, "--", python, "-c", "print('started')")
    finally:
        away.rename(profile)
    assert outcome.status == OWN_FAILURE
    assert profile.name in outcome.err and outcome.out == ""
