"""Sentinel stays out of the way of what it runs: its streams, its status, its signals, its processes."""
import pathlib
import signal
import sys

import pytest

import training

SMALL = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "small_training.py"


def test_streams_are_the_programs_own(sentinel):
    outcome = sentinel("run", "--", "cat", stdin="one\ntwo\n")
    assert (outcome.status, outcome.out, outcome.err) == (0, "one\ntwo\n", "")


def test_output_of_a_training_is_the_plain_ones(sentinel, python):
    plain = training.finish([python, SMALL])
    outcome = sentinel("run", "--fast", "64M", "--", python, SMALL)
    assert outcome.status == 0 and outcome.out == plain.out


def test_a_shell_between(sentinel, python, tmp_path):
    summary = tmp_path / "summary.json"
    command = f"echo before; '{python}' '{SMALL}'; code=$?; echo after; exit $code"
    outcome = sentinel("run", "--fast", "64M", "--summary", summary, "--", "sh", "-c", command)
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0] == "before" and lines[-1] == "after"
    assert len(training.read_json(summary)["steps"]) == 7


def test_exec(sentinel, python, tmp_path):
    """A program that becomes another, as many launchers do."""
    command = f"import os; os.execv({str(python)!r}, [{str(python)!r}, {str(SMALL)!r}])"
    outcome = sentinel("run", "--fast", "64M", "--summary", tmp_path / "summary.json", "--",
                       sys.executable, "-c", command)
    assert outcome.status == 0, outcome.err
    assert len(training.read_json(tmp_path / "summary.json")["steps"]) == 7


def test_only_the_process_that_trains_is_profiled(sentinel, python, tmp_path):
    """One that loads PyTorch starts one that trains: one profile, named by the trainer's id."""
    command = (f"import os, subprocess, torch; child = subprocess.Popen([{str(python)!r}, {str(SMALL)!r}]); "
               "print('trainer', child.pid, flush=True); raise SystemExit(child.wait())")
    outcome = sentinel("record", "-o", tmp_path / "step-%p.sentinel", "--", python, "-c", command)
    assert outcome.status == 0, outcome.err
    trainer = outcome.out.split()[1]
    assert [file.name for file in tmp_path.glob("*.sentinel")] == [f"step-{trainer}.sentinel"]


def test_a_summary_is_the_trainers(sentinel, python, tmp_path):
    command = f"import subprocess, sys, torch; sys.exit(subprocess.call([{str(python)!r}, {str(SMALL)!r}]))"
    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", "64M", "--summary", summary, "--", python, "-c", command)
    assert outcome.status == 0, outcome.err
    assert len(training.read_json(summary)["steps"]) == 7


@pytest.mark.parametrize("code", [0, 1, 7, 124])
def test_status(code, sentinel):
    assert sentinel("run", "--", "sh", "-c", f"exit {code}").status == code


def test_a_command_that_is_not_there(sentinel):
    outcome = sentinel("run", "--", "no-such-command-anywhere")
    assert outcome.status in (125, 127) and "no-such-command-anywhere" in outcome.err


def test_wrong_usage(sentinel):
    assert sentinel("run").status == 2
    assert sentinel("run", "--no-such-option", "--", "true").status == 2
    assert sentinel("no-such-verb").status == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_are_passed_on(name, sentinel):
    program = f"trap 'echo got; exit 9' {name[3:]}; echo ready; while :; do sleep 0.05; done"

    def during(process):
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))

    outcome = sentinel("run", "--", "sh", "-c", program, during=during, timeout=20)
    assert (outcome.status, outcome.out) == (9, "got\n")


def test_a_terminated_training(sentinel, python):
    def during(process):
        while process.stdout.readline().strip() != "waiting":
            pass
        process.send_signal(signal.SIGTERM)

    outcome = sentinel("run", "--fast", "64M", "--", python, SMALL, "--end", "wait", "--at", "5",
                       during=during, timeout=60)
    assert outcome.status == 128 + signal.SIGTERM
