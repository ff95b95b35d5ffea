"""A sampled profile against one that counts every page: within the error that it states."""
import sqlite3

import pytest

import training

TRAININGS = {
    "resnet": ("resnet_cifar.py", "--depth", "20", "--batch", "64"),
    "lstm": ("lstm_lm.py", "--hidden", "256", "--batch", "20", "--vocab", "4000"),
    "mobilenet": ("mobilenet.py", "--batch", "16"),
}


def counts(profile):
    """The openings of each tensor, and the stated error."""
    with sqlite3.connect(f"file:{profile}?mode=ro", uri=True) as file:
        tensors = dict(file.execute("SELECT tensor, sum(reads + writes) FROM accesses GROUP BY tensor"))
        return tensors, file.execute("SELECT value FROM meta WHERE key = 'sample_error'").fetchone()[0]


@pytest.mark.parametrize("name", TRAININGS)
def test_within_what_it_states(name, sentinel, request, tmp_path):
    # PyTorch 2 runs an LSTM as few ops that open few pages, so its samples are few: 4 to 6 % are stated there.
    python = request.getfixturevalue("torch1" if name == "lstm" else "python")
    script, *flags = *TRAININGS[name], "--steps", "5"
    sampled, exact = tmp_path / "sampled", tmp_path / "exact"
    for options in (("-o", sampled), ("--exact", "-o", exact)):
        assert sentinel("record", *options, "--", python, training.WORKLOADS / script, *flags).status == 0
    (few, stated), (every, none) = counts(sampled), counts(exact)
    assert none == 0 < stated < 0.05
    assert sum(few.values()) == pytest.approx(sum(every.values()), rel=stated)
    # Not because errors of one tensor make up for those of another.
    misses = sum(abs(few.get(tensor, 0) - every.get(tensor, 0)) for tensor in few | every)
    assert misses < 0.05 * sum(every.values())
