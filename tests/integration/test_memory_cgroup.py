"""The budget is real: the kernel enforces it. A training runs in a memory cgroup that holds what is
not tensors, the budget, and 64 MiB; without Sentinel it is killed there. Without a budget the group is one."""
import json
import os
import pathlib

import pytest

import cgroup
import training

GROWING = pathlib.Path(__file__).resolve().parent / "scripts" / "growing.py"
RESNET = ("resnet_cifar.py", "--depth", "20", "--batch", "192")
CASES = {
    "equal steps": (*RESNET, "--steps", "8"),
    "smaller batches and evaluation": (*RESNET, "--images", "500", "--last-batch", "--eval-every", "2", "--steps", "10"),
}
SPARE = 64 << 20
KILLED = 128 + 9
# While what is not tensors is measured, glibc keeps no freed tensors for later: they are none.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


def in_group(command, limit=None, env=None):
    """Runs the command in a group of its own; its outcome and the group's peak."""
    try:
        with cgroup.MemoryGroup(f"sentinel-test-{os.getpid()}") as group:
            if limit is not None:
                group.limit(limit)
            return training.finish(group.inside(*command), env=env), group.peak()
    except cgroup.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def profile(case, profile_of):
    return profile_of(*case)


@pytest.fixture(scope="module")
def sizes(case, profile, python, sentinel):
    """Bytes: a fifth of the tensors, and the limit: that, what is not tensors (the plain run's peak
    less its peak of live tensors), and what is to spare."""
    script, *flags = case
    outcome, peak = in_group([python, training.WORKLOADS / script, *flags], env=GIVE_BACK)
    assert outcome.status == 0, outcome.err
    summary = sentinel("report", profile, "summary", "--format", "json")
    assert summary.status == 0, summary.err
    tensors = json.loads(summary.out)["peak_live_bytes"]
    assert 250 << 20 < tensors < peak
    return {"tensors": tensors, "budget": tensors // 5, "limit": peak - tensors + tensors // 5 + SPARE}


def test_killed_without(case, sizes, python):
    script, *flags = case
    outcome, _ = in_group([python, training.WORKLOADS / script, *flags], sizes["limit"])
    assert outcome.status == KILLED, "the control fits: the limit proves nothing"


STARTS = {
    "budget in bytes from the first allocation": lambda profile, budget: ["--fast", budget],
    "stored profile": lambda profile, budget: ["--profile", profile, "--fast", "20%"],
    "no budget": lambda profile, budget: [],
    "no budget, stored profile": lambda profile, budget: ["--profile", profile],
}


@pytest.fixture
def in_limit(sizes, build, python, tmp_path):
    """Runs a training under Sentinel in a group of the limit and some bytes more."""
    def run(options, script, *flags, more=0, env=None):
        record, summary = tmp_path / "record.json", tmp_path / "summary.json"
        outcome, _ = in_group([build / "bin" / "sentinel", "run", *options, "--summary", summary, "--",
                                  python, *script, *flags, "--json", record], sizes["limit"] + more, env)
        outcome.record, outcome.record_file = training.read_json(record), record
        outcome.summary = training.read_json(summary)
        return outcome
    return run


@pytest.mark.parametrize("start", STARTS)
def test_finishes(start, case, sizes, profile, plain, expect_same, in_limit):
    script, *flags = case
    outcome = in_limit(STARTS[start](profile, sizes["budget"]), [training.WORKLOADS / script], *flags)
    expect_same(plain(*case), outcome)
    if "no budget" in start:
        assert abs(outcome.summary["fast_limit_bytes"] - sizes["budget"]) < SPARE / 2
    else:
        assert outcome.summary["fast_limit_bytes"] <= sizes["budget"]
    assert any(step["demoted_bytes"] > 0 for step in outcome.summary["steps"] if step["phase"] == "steady")


# What is not tensors takes nearly twice what the limit leaves unused, while the plan goes on; what it lets go, tensors
# may have.
def test_tensors_make_room_for_what_grows(case, sizes, profile, plain, expect_same, in_limit):
    script, *flags = case
    if "--last-batch" in flags:
        pytest.skip("with equal steps it is seen")
    longer = (script, *flags[:-1], "18")
    limits = []
    for env in (GIVE_BACK, {**GIVE_BACK, "LETS_GO": "1"}):
        outcome = in_limit(["--profile", profile], [GROWING, script], *longer[1:], more=2 * SPARE, env=env)
        expect_same(plain(*longer), outcome)
        assert "what is not tensors has grown" in outcome.err
        limits.append(outcome.summary["fast_limit_bytes"])
    assert limits[1] - limits[0] > SPARE
    assert outcome.summary["peak_fast_bytes"] > limits[0]


def test_nothing_moves_where_tensors_fit(case, sizes, profile, plain, expect_same, in_limit):
    script, *flags = case
    outcome = in_limit(["--profile", profile], [training.WORKLOADS / script], *flags, more=2 * sizes["tensors"])
    expect_same(plain(*case), outcome)
    assert outcome.summary["fast_limit_bytes"] == 0
    assert not any(step["demoted_bytes"] for step in outcome.summary["steps"])


# Its tensors do not fit, this one's do: there is a limit from the second step on, until the own profile is there.
def test_stored_profile_of_another_model(case, sizes, profile_of, plain, expect_same, in_limit):
    script, *flags = case
    other = profile_of("resnet_cifar.py", "--depth", "32", "--batch", "192", "--steps", "8")
    longer = (script, *flags[:-1], "12")
    outcome = in_limit(["--profile", other], [training.WORKLOADS / script], *longer[1:],
                       more=sizes["tensors"] * 6 // 5)
    expect_same(plain(*longer), outcome)
    assert "training goes on within that" in outcome.err and "profiling again" in outcome.err
    assert outcome.summary["fast_limit_bytes"] == 0
