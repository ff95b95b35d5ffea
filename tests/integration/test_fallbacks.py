"""Each fallback can be forced and gives the same numbers; a slow tier that fails stops the training
before a wrong number exists."""
import pathlib

import pytest

SMALL = pathlib.Path(__file__).resolve().parent / "scripts" / "small_training.py"
SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "160", "--steps", "7"
OWN_FAILURE = 125

FORCED = {
    "threads": {"SENTINEL_IO": "threads"},
    "copy": {"SENTINEL_MOVE": "copy"},
    "threads-and-copy": {"SENTINEL_IO": "threads", "SENTINEL_MOVE": "copy"},
    "op-inputs": {"SENTINEL_COUNT": "ops"},
}


@pytest.mark.parametrize("name", FORCED)
def test_the_same_numbers(name, plain, under, expect_same):
    outcome = under("20%", SCRIPT, *FLAGS, env=FORCED[name])
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert outcome.summary["steps"][-1]["demoted_bytes"] > 0
    assert "cannot be counted" not in outcome.err


def test_several_disks(plain, under, expect_same, tmp_path):
    """A slow tier over two directories, which count as two drives; where blocks lie is slow_tier_test.cpp's."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    outcome = under("20%", SCRIPT, *FLAGS, options=("--tiers", f"slow={folders[0]},{folders[1]}", "--allow-tmpfs"))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert outcome.summary["steps"][-1]["demoted_bytes"] > 0
    assert outcome.summary["wear"]["drives"] == 2


@pytest.mark.parametrize("io, ring", [("threads", False), ("auto", True)])
def test_threads_use_no_ring(io, ring, sentinel, python):
    outcome = sentinel("run", "--fast", "64M", "--", python, SMALL, "--open-files", env={"SENTINEL_IO": io})
    assert outcome.status == 0, outcome.err
    if ring and "anon_inode:[io_uring]" not in outcome.err:
        pytest.skip("io_uring is refused here: threads are what `auto` takes")
    assert ("anon_inode:[io_uring]" in outcome.err) == ring


FAULTS = [
    ("write:5:EIO", "uring", "Input/output error"),
    ("read:5:EIO", "threads", "Input/output error"),
    ("write:9:ENOSPC", "threads", "No space left on device"),
    ("read:2:short", "uring", "Input/output error"),
]


@pytest.mark.parametrize("fault, io, reason", FAULTS)
def test_a_failing_slow_tier_stops_it(fault, io, reason, plain, under):
    outcome = under("20%", SCRIPT, *FLAGS, env={"SENTINEL_INJECT": fault, "SENTINEL_IO": io})
    if "io_uring is refused" in outcome.err:
        pytest.skip(outcome.err.strip())
    assert outcome.status == OWN_FAILURE
    assert "training stopped" in outcome.err and reason in outcome.err
    assert outcome.record is None, "the training went to its end"
    # Whatever it printed until then is right.
    printed = losses_of(outcome.out)
    assert printed and printed == losses_of(plain(SCRIPT, *FLAGS).out)[:len(printed)]


def losses_of(text):
    return [line.split()[:4] for line in text.splitlines() if line.startswith("step ")]


NO_KERNEL = not pathlib.Path("/dev/sentinel").exists()
REFUSED = {
    "kernel-with-an-ssd": (("--count", "kernel", "--fast", "64M"), "--tiers of two nodes"),
    "watch-with-an-ssd": (("--watch", "1", "--fast", "64M"), "--tiers of two nodes"),
    "kernel-absent": (("--count", "kernel", "--tiers", "fast=node0,slow=node0"), "patched kernel"),
    "watch-absent": (("--watch", "1"), "patched kernel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_counting_that_was_asked_for_and_cannot_be_had(name, sentinel, tmp_path):
    """Not a fallback: who names a source wants that one. It shows before the command starts."""
    if name.endswith("absent") and not NO_KERNEL:
        pytest.skip("this kernel has /dev/sentinel")
    options, words = REFUSED[name]
    outcome = sentinel("run", *options, "--", "touch", tmp_path / "started",
                       env={"SENTINEL_INJECT": "one-node" if "--tiers" in options else ""})
    assert outcome.status == OWN_FAILURE
    assert words in outcome.err
    assert not (tmp_path / "started").exists()
