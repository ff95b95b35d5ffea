"""The budget is real: the kernel enforces it. A training runs in a memory cgroup that holds what is
not tensors, the budget, and 64 MiB; without Sentinel it is killed there."""
import json
import os

import pytest

import cgroup
import training

SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "192", "--steps", "8"
SPARE = 64 << 20
KILLED = 128 + 9
# While what is not tensors is measured, glibc keeps no freed tensors for later: they are none.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


@pytest.fixture
def group():
    """A fresh one each time: what a run leaves charged would count against the next."""
    made = []

    def make():
        try:
            made.append(cgroup.MemoryGroup(f"sentinel-test-{os.getpid()}-{len(made)}").__enter__())
        except cgroup.Unavailable as reason:
            pytest.skip(str(reason))
        return made[-1]
    yield make
    for one in made:
        one.__exit__()


@pytest.fixture
def profile(profile_of):
    return profile_of(SCRIPT, *FLAGS)


@pytest.fixture
def sizes(group, profile, python, sentinel):
    """Bytes: what is not tensors (the plain run's peak less its peak of live tensors), a fifth of
    the tensors, and both with what is to spare."""
    free = group()
    outcome = training.finish(free.inside(python, training.WORKLOADS / SCRIPT, *FLAGS), env=GIVE_BACK)
    assert outcome.status == 0, outcome.err
    summary = sentinel("report", profile, "summary", "--format", "json")
    assert summary.status == 0, summary.err
    tensors = json.loads(summary.out)["peak_live_bytes"]
    other = free.peak() - tensors
    assert tensors > 250 << 20 and other > 0
    print("tensors", tensors >> 20, "other", other >> 20)
    return {"budget": tensors // 5, "limit": other + tensors // 5 + SPARE}


def run_inside(group, size, command):
    confined = group()
    confined.limit(size)
    return training.finish(confined.inside(*command))


def test_killed_without(group, sizes, python):
    outcome = run_inside(group, sizes["limit"], [python, training.WORKLOADS / SCRIPT, *FLAGS])
    assert outcome.status == KILLED, "the control fits: the limit proves nothing"


def test_budget_in_bytes_from_the_first_allocation(group, sizes, build, python, plain, expect_same, tmp_path):
    check(group, sizes, build, python, plain, expect_same, tmp_path, ["--fast", sizes["budget"]])


def test_stored_profile(group, sizes, build, python, plain, expect_same, tmp_path, profile):
    check(group, sizes, build, python, plain, expect_same, tmp_path, ["--profile", profile, "--fast", "20%"])


def check(group, sizes, build, python, plain, expect_same, tmp_path, options):
    record, summary = tmp_path / "record.json", tmp_path / "summary.json"
    outcome = run_inside(group, sizes["limit"], [
        build / "bin" / "sentinel", "run", *options, "--summary", summary, "--",
        python, training.WORKLOADS / SCRIPT, *FLAGS, "--json", record])
    outcome.record, outcome.record_file = training.read_json(record), record
    outcome.summary = training.read_json(summary)
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert outcome.summary["fast_limit_bytes"] <= sizes["budget"] + (2 << 20)
