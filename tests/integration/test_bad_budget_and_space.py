"""Budgets that cannot work and slow tiers that cannot hold what leaves memory."""
import pathlib
import re
import subprocess

import pytest

SCRIPT, *FLAGS = "resnet_cifar.py", "--depth", "20", "--batch", "160", "--steps", "7"
SHARED_MEMORY = pathlib.Path("/dev/shm")
OWN_FAILURE, WRONG_USAGE = 125, 2


def test_too_small_a_budget_names_the_smallest_that_works(under, plain, expect_same):
    refused = under("1M", SCRIPT, *FLAGS)
    assert refused.status == OWN_FAILURE and refused.record is None
    smallest = re.search(r"the smallest that does is .*?\((\d+) bytes\)", refused.err)
    assert smallest and "section IV-E" in refused.err, refused.err
    works = under(smallest[1], SCRIPT, *FLAGS)
    expect_same(plain(SCRIPT, *FLAGS), works)
    assert works.summary["fast_limit_bytes"] == int(smallest[1])
    assert under(str(int(smallest[1]) - 1), SCRIPT, *FLAGS).status == OWN_FAILURE


@pytest.mark.parametrize("fast", ["0%", "lots", "-5M", "20 percent"])
def test_no_budget_at_all(fast, sentinel):
    outcome = sentinel("run", f"--fast={fast}", "--", "echo", "started")
    assert outcome.status in (WRONG_USAGE, OWN_FAILURE) and outcome.out == ""
    assert fast in outcome.err


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(bytes): a file system of that size in a file, mounted; needs a right to mount."""
    mounted = []

    def make(size):
        image, folder = tmp_path / "disk", tmp_path / "mounted"
        folder.mkdir()
        with open(image, "wb") as file:
            file.truncate(size)
        for command in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, folder]):
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as error:
                pytest.skip(f"{command[0]} cannot be run here: {error}")
            if done.returncode != 0:
                pytest.skip(f"no file system of our own here: {' '.join(map(str, command))}: {done.stderr.strip()}")
        mounted.append(folder)
        return folder
    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_without_room_is_refused_beforehand(small_disk, under):
    outcome = under("20%", SCRIPT, *FLAGS, options=("--slow", small_disk(32 << 20)))
    assert outcome.status == OWN_FAILURE and outcome.record is None
    assert "free" in outcome.err and "mounted" in outcome.err


def test_a_disk_that_fills_up_stops_the_training(small_disk, under, plain):
    outcome = under("20%", SCRIPT, *FLAGS, options=("--slow", small_disk(190 << 20)))
    assert outcome.status == OWN_FAILURE and outcome.record is None
    assert "No space left on device" in outcome.err and "training stopped" in outcome.err


def test_nothing_is_left_on_the_disk(small_disk, under, plain, expect_same):
    folder = small_disk(900 << 20)
    outcome = under("20%", SCRIPT, *FLAGS, options=("--slow", folder))
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert [path.name for path in folder.iterdir()] == ["lost+found"]


def in_memory():
    if not SHARED_MEMORY.is_dir():
        pytest.skip("/dev/shm is not there")
    if "tmpfs" not in subprocess.run(["stat", "-f", "-c", "%T", SHARED_MEMORY], capture_output=True, text=True).stdout:
        pytest.skip("/dev/shm is no tmpfs")
    return SHARED_MEMORY


def test_a_tmpfs_is_refused(under):
    outcome = under("20%", SCRIPT, *FLAGS, options=("--slow", in_memory()))
    assert outcome.status == OWN_FAILURE and outcome.out == ""
    assert "tmpfs" in outcome.err and "--allow-tmpfs" in outcome.err


def test_a_tmpfs_can_be_forced(under, plain, expect_same):
    outcome = under("20%", SCRIPT, *FLAGS, options=("--slow", in_memory()), env={"SENTINEL_ALLOW_TMPFS": "1"})
    expect_same(plain(SCRIPT, *FLAGS), outcome)
    assert outcome.summary["steps"][-1]["demoted_bytes"] > 0


def test_a_directory_that_may_not_be_written(sentinel, tmp_path):
    outcome = sentinel("run", "--fast", "64M", "--slow", tmp_path / "missing", "--", "echo", "started")
    assert outcome.status == OWN_FAILURE and outcome.out == "" and "missing" in outcome.err
