"""Under each of a shell's limits a training runs, or the message names the limit and what to do."""
import pathlib

import pytest

import training

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
SCRIPT = CASES / "saves_on_signal.py"


def limited(limit, *command):
    """ulimit's word: -v 20000000."""
    return ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *map(str, command)]


def run(build, python, limit, *options):
    return training.finish(limited(limit, build / "bin" / "sentinel", "run", "--fast", "40M", *options, "--", python, SCRIPT, "5"))


@pytest.mark.parametrize("limit", ["-d 1500000", "-f 300000", "-v 20000000", "-n 24", "-l 0", "-s 256"])
def test_it_trains(limit, build, python):
    outcome = run(build, python, limit)
    assert outcome.status == 0, outcome.err
    assert "steady step" in outcome.err
    sized = limit.split()[0] in ("-d", "-f", "-v")
    assert (f"ulimit {limit.split()[0]}" in outcome.err) == sized, outcome.err


@pytest.mark.parametrize("limit, largest", [("-d 1500000", None), ("-f 300000", "--arena 292M"), ("-v 20000000", None)])
def test_an_arena_that_does_not_fit(limit, largest, build, python):
    outcome = run(build, python, limit, "--arena", "64G")
    assert outcome.status == 125
    assert f"ulimit {limit.split()[0]}" in outcome.err and "leaves room for --arena " in outcome.err
    assert largest is None or largest in outcome.err
    named = outcome.err.split("leaves room for --arena ")[1].split(",")[0]
    again = run(build, python, limit, "--arena", named)
    assert again.status == 0, again.err


@pytest.mark.parametrize("limit", ["-d 500000", "-f 20000", "-v 2000000"])
def test_hardly_any_arena_fits(limit, build, python):
    """PyTorch itself may not fit either, and says so in its own words."""
    outcome = run(build, python, limit)
    assert "bad_alloc" not in outcome.err and "could not size" not in outcome.err
    assert f"ulimit {limit.split()[0]}" in outcome.err or outcome.status not in (0, 125), outcome.err
