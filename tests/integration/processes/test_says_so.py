"""A run that did not do what it was asked for says so in one line, and with --strict ends with 125; its status is else
the program's. A share of the peak that is smaller than any budget that works is taken for that budget."""
import pathlib

import pytest

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
OWN_FAILURE = 125


@pytest.fixture
def losses(python):
    """losses(case, *arguments): what the case prints without Sentinel."""
    import training

    def run(case, *arguments, interpreter=None):
        return training.finish([interpreter or python, CASES / case, *arguments]).out
    return run


def told(outcome, *words):
    """The lines on stderr that hold all of these words."""
    return [line for line in outcome.err.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize("options, steps, so", [(("--fast", "20%"), "2", "so no limit held"),
                                                (("--fast", "20%"), "4", "so no limit held"),
                                                (("--fast", "64M"), "2", "by demand alone")])
def test_too_few_steps(options, steps, so, sentinel, python, losses):
    """Of four steps the last is counted, and its plan finds no step to hold for."""
    outcome = sentinel("run", *options, "--", python, CASES / "few_steps.py", steps)
    assert outcome.status == 0 and outcome.out == losses("few_steps.py", steps)
    assert len(told(outcome, "the training ended before the first planned step", so)) == 1


def test_without_a_limit_nothing_is_missed(sentinel, python):
    assert sentinel("run", "--", "true").err == ""
    assert sentinel("run", "--", python, CASES / "few_steps.py", "2").err.count("plan") == 0
    assert sentinel("run", "--strict", "--", "true").status == OWN_FAILURE


def test_strict_makes_it_a_failure(sentinel, python):
    words = ("--fast", "20%", "--strict", "--", python, CASES / "few_steps.py")
    assert sentinel("run", *words, "2").status == OWN_FAILURE
    assert sentinel("run", "--quiet", *words, "2").err.count("before the first planned step") == 1
    assert sentinel("run", *words, "7").status == 0


def test_strict_with_what_is_not_supported(sentinel, python, tmp_path):
    script = tmp_path / "gives_up.py"
    script.write_text(f"import ctypes, os, runpy, sys, torch\n"
                      "ctypes.CDLL(os.environ['SENTINEL_LIBRARY']).sentinel_unsupported(b'this')\n"
                      f"sys.argv = ['', '7']; sys.path.append({str(CASES)!r})\n"
                      f"runpy.run_path({str(CASES / 'few_steps.py')!r})\n")
    for strict, status in (((), 0), (("--strict",), OWN_FAILURE)):
        outcome = sentinel("run", "--fast", "64M", *strict, "--", python, script)
        assert outcome.status == status and "this is not supported yet" in outcome.err


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-Es"])
def test_a_python_that_does_not_load_sentinel(option, sentinel, python):
    outcome = sentinel("run", "--fast", "20%", "--", python, option, "-c", "print(3)")
    assert outcome.status == 0 and outcome.out == "3\n"
    assert told(outcome, "no training was seen, so no limit held", option[:2] if option != "-Es" else "-E")


def test_nothing_is_trained(sentinel, python):
    outcome = sentinel("run", "--fast", "20%", "--", python, "-c", "import torch; print(torch.ones(1).item())")
    assert outcome.status == 0 and told(outcome, "no training step was seen, so no limit held", "sentinel.step()")
    outcome = sentinel("run", "--fast", "20%", "--", "true")
    assert outcome.status == 0 and told(outcome, "no training was seen", "imported torch or keras")
    assert sentinel("run", "--quiet", "--fast", "20%", "--", "true").err == ""
    failed = sentinel("run", "--fast", "20%", "--", "false")
    assert failed.status == 1 and failed.err == ""  # the command has its own reason


def test_trainings_of_child_processes_count(sentinel, python, tmp_path):
    """As a launcher starts them: the command itself imports nothing."""
    script = tmp_path / "launch.py"
    script.write_text(f"""
import subprocess, sys
for steps in sys.argv[1:]:
    subprocess.run([sys.executable, {str(CASES / 'few_steps.py')!r}, steps], check=True, close_fds=True)
""")
    outcome = sentinel("run", "--fast", "20%", "--", python, script, "7", "2")
    assert outcome.status == 0 and told(outcome, "1 of 2 trainings ended before the first planned step"), outcome.err
    outcome = sentinel("run", "--fast", "20%", "--strict", "--", python, script, "7", "7")
    assert outcome.status == 0, outcome.err


def test_first_moves_are_told(sentinel, python):
    outcome = sentinel("run", "--fast", "40%", "--", python, CASES / "few_steps.py", "9")
    assert outcome.status == 0
    assert len(told(outcome, "the second within the limit", "/var/tmp", "waited for memory")) == 1, outcome.err


def test_a_share_below_the_smallest_budget(sentinel, python, losses, tmp_path):
    import json

    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", "20%", "--summary", summary, "--", python, CASES / "small_share.py")
    assert outcome.status == 0 and outcome.out == losses("small_share.py"), outcome.err
    (line,) = told(outcome, "less than can work", "the smallest budget that does")
    read = json.loads(summary.read_text())
    assert f"{read['fast_limit_bytes'] / 2**20:.1f} MiB" in line
    assert read["peak_fast_bytes"] <= read["fast_limit_bytes"]
