"""A program has the kernel keep tensors' memory where it is: training computes the same, or ends with an error."""
import pathlib

import pytest

import training

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "kept_memory.py"
WHILE_COUNTING, LATER = "1", "6"  # the profile is taken in steps 3 and 4
REFUSED = {"registered": "a tensor's memory is pinned", "locked": "has locked memory of tensors",
           "all_locked": "has locked memory of tensors"}


def test_a_buffer_that_is_pinned_later_is_the_tensor(sentinel, python):
    plain = training.finish([python, SCRIPT, "registered", LATER])
    assert plain.status == 0, plain.err
    assert plain.out.splitlines()[-2:] == ["buffer read True", "0 wrong"]
    outcome = sentinel("run", "--fast", "50%", "--", python, SCRIPT, "registered", LATER)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out


@pytest.mark.parametrize("how, when", [("registered", WHILE_COUNTING), ("locked", LATER), ("all_locked", LATER),
                                       ("all_locked", WHILE_COUNTING)])
def test_what_cannot_be_moved_is_refused(how, when, sentinel, python):
    plain = training.finish([python, SCRIPT, how, when])
    assert plain.status == 0, plain.err
    outcome = sentinel("run", "--fast", "50%", "--", python, SCRIPT, how, when)
    assert outcome.status == 125
    assert REFUSED[how] in outcome.err
    assert plain.out.startswith(outcome.out)


def test_pinned_memory_stays_without_counting(sentinel, python):
    plain = training.finish([python, SCRIPT, "registered", WHILE_COUNTING])
    outcome = sentinel("run", "--fast", "50%", "--count", "ops", "--", python, SCRIPT, "registered", WHILE_COUNTING)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
