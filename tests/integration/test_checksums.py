"""Bytes that come back from the slow tier other than they were written end the training before anybody uses one: another
process has changed the file, or the drive has returned others."""
import pathlib

import pytest

import training

CORRUPTED = pathlib.Path(__file__).resolve().parent / "scripts" / "corrupted.py"
LEVELS = ["full", "sampled", "off"]
OTHER_BYTES, OTHER_END = "gave back other bytes than were written", "does not end where it was left"


@pytest.fixture(scope="module")
def run(sentinel, python):
    def corrupted(level, how, *flags, env=None):
        return sentinel("run", "--fast", "36M", f"--checksum={level}", "--", python, CORRUPTED, how, *flags, env=env)
    return corrupted


def expect_stopped(outcome, why):
    assert outcome.status == 125, outcome.out + outcome.err
    assert why in outcome.err and "No wrong number was computed" in outcome.err
    assert "found" not in outcome.out


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_left_alone_trains_as_without(level, run, python):
    plain = training.finish([python, CORRUPTED, "nothing"])
    outcome = run(level, "nothing")
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out and "found 0 wrong" in outcome.out


@pytest.mark.parametrize("how", ["truncate", "extend"])
@pytest.mark.parametrize("level", LEVELS)
def test_another_end_is_noticed_at_every_level(level, how, run):
    expect_stopped(run(level, how), OTHER_END)


@pytest.mark.parametrize("how", ["zero", "punch", "swap"])
@pytest.mark.parametrize("level", ["full", "sampled"])
def test_other_blocks_are_noticed(level, how, run):
    expect_stopped(run(level, how), OTHER_BYTES)


@pytest.mark.parametrize("how", ["truncate", "zero", "punch", "swap", "flip"])
def test_a_change_while_steps_go_on_is_noticed(how, run):
    expect_stopped(run("full", how, "--live"), OTHER_END if how == "truncate" else OTHER_BYTES)


def test_a_truncation_while_steps_go_on_is_noticed_without_an_option(sentinel, python):
    expect_stopped(sentinel("run", "--fast", "36M", "--", python, CORRUPTED, "truncate", "--live"), OTHER_END)


def test_a_flipped_bit_is_noticed_by_all_bytes(run):
    expect_stopped(run("full", "flip"), OTHER_BYTES)


def test_without_checksums_nobody_notices(run):
    """That these tests can fail: the same changes are used, and are wrong numbers."""
    outcome = run("off", "swap")
    assert outcome.status == 0 and "found 0 wrong" not in outcome.out, outcome.out
    assert run("sampled", "flip").status == 0  # outside of what is sampled


@pytest.mark.parametrize("level, how, why", [
    *((level, how, OTHER_END) for level in ("off", "sampled", "full") for how in ("truncate", "trim")),
    ("sampled", "swap", OTHER_BYTES), ("full", "swap", OTHER_BYTES), ("full", "zero", OTHER_BYTES),
    ("full", "flip", OTHER_BYTES)])
def test_a_child_compares_what_it_reads(level, how, why, run):
    outcome = run(level, how, "--child")
    assert "child ended by 125" in outcome.out and "child found" not in outcome.out, outcome.out
    assert why in outcome.err


@pytest.mark.parametrize("level", ["full", "sampled"])
def test_a_drive_that_flips_a_bit(level, run):
    expect_stopped(run(level, "nothing", env={"SENTINEL_INJECT": "read:20:flip"}), OTHER_BYTES)


def test_a_level_that_does_not_exist_is_refused(sentinel):
    outcome = sentinel("run", "--checksum=some", "--", "true")
    assert outcome.status == 2 and "off, sampled, full" in outcome.err


def test_the_option_alone_is_all_bytes(sentinel, python):
    outcome = sentinel("run", "--fast", "36M", "--checksum", "--", python, CORRUPTED, "flip")
    expect_stopped(outcome, OTHER_BYTES)


def test_all_bytes_are_refused_where_the_gpu_moves_them(sentinel):
    outcome = sentinel("run", "--checksum", "--io", "cufile", "--tiers", "fast=gpu0,slow=host", "--host-memory", "64M",
                       "--", "true")
    assert outcome.status == 2 and "leave one of them out" in outcome.err
