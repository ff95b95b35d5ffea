"""Each signal reaches the program once, whoever was sent it; who ends `sentinel` ends the training; jobs stop and go on."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import training

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
COUNTER, SAVES = CASES / "signal_counter.py", CASES / "saves_on_signal.py"
CATCHABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


def name_of(number):
    return signal.Signals(number).name if number < signal.SIGRTMIN else f"RT{number - signal.SIGRTMIN}"


def descendants(process):
    """Of a process, by id, the nearest first."""
    try:
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return []
    found = [int(child) for child in children]
    return found + [one for child in found for one in descendants(child)]


def state_of(process):
    """T: stopped; none: gone, or a zombie that nobody has buried yet."""
    with contextlib.suppress(OSError):
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return None if state in "ZX" else state
    return None


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def to_command(process, number):
    os.kill(process.pid, number)


def to_group(process, number):
    os.killpg(process.pid, number)


def to_each(process, number):
    """As Slurm does it to all processes of a job."""
    for one in [process.pid, *descendants(process.pid)]:
        os.kill(one, number)


def arrivals(sentinel, send, number, words=()):
    def during(process):
        assert process.stdout.readline() == "ready\n"
        send(process, number)

    outcome = sentinel("run", "--", *words, sys.executable, COUNTER, during=during, timeout=60)
    assert outcome.status == 0, outcome.err
    return outcome.out.splitlines()[-1]


@pytest.mark.parametrize("send", [to_command, to_group, to_each])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGALRM, signal.SIGCONT,
                                    signal.SIGTSTP, signal.SIGRTMIN + 3], ids=name_of)
def test_once(send, number, sentinel):
    assert arrivals(sentinel, send, number) == str([(name_of(number), 1)])


def test_every_catchable_signal(sentinel):
    """Sent to the command alone, one after the other."""
    def during(process):
        assert process.stdout.readline() == "ready\n"
        for number in CATCHABLE:
            os.kill(process.pid, number)
            assert process.stdout.readline().strip() == name_of(number)

    outcome = sentinel("run", "--", sys.executable, COUNTER, during=during, timeout=60)
    assert outcome.status == 0, outcome.err
    assert outcome.out.strip() == str(sorted((name_of(number), 1) for number in CATCHABLE))


@pytest.mark.parametrize("send", [to_command, to_group, to_each])
def test_a_program_in_a_group_of_its_own(send, sentinel):
    apart = "import os, sys; os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    assert arrivals(sentinel, send, signal.SIGUSR2, (sys.executable, "-c", apart)) == str([("SIGUSR2", 1)])


@pytest.mark.parametrize("send, name, told", [(to_command, "SIGUSR1", "saved 0 [('SIGUSR1', 1)]"),
                                              (to_group, "SIGUSR1", "saved 0 [('SIGUSR1', 1)]"),
                                              (to_group, "SIGINT", "saved 1 []")])
def test_a_training_that_saves(send, name, told, sentinel, python):
    def during(process):
        assert process.stdout.readline().startswith("pid")
        time.sleep(4)
        send(process, getattr(signal, name))

    outcome = sentinel("run", "--fast", "40M", "--", python, SAVES, "8", during=during, timeout=120)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines()[-1] == told


@pytest.mark.parametrize("below", [False, True], ids=["its-own-child", "below-a-shell"])
def test_a_killed_command_ends_the_training(below, sentinel, python):
    command = [python, SAVES, "100"]
    if below:
        command = ["sh", "-c", f"'{python}' '{SAVES}' 100; :"]
    ids = []

    def during(process):
        line = process.stdout.readline()
        assert line.startswith("pid"), line
        ids.append(int(line.split()[1]))
        time.sleep(2)  # the session begins with the first tensor
        os.kill(process.pid, signal.SIGKILL)
        assert until(lambda: state_of(ids[0]) is None), "the training goes on"

    outcome = sentinel("run", "--fast", "40M", "--", *command, during=during, timeout=60)
    assert outcome.status == 128 + signal.SIGKILL


def test_a_training_in_the_background_goes_on(sentinel, python, tmp_path):
    """Its command has ended, and so `sentinel` has."""
    command = f"'{python}' '{SAVES}' 6 >'{tmp_path}/out' 2>&1 </dev/null & sleep 4"
    assert sentinel("run", "--fast", "40M", "--", "sh", "-c", command, timeout=60).status == 0
    assert until(lambda: "saved 0 []" in (tmp_path / "out").read_text(), 60)


@pytest.mark.parametrize("send", [to_command, to_group])
def test_job_control(send, build):
    """A shell sees a job that stops and one that goes on, and so does the program."""
    program = "import time; print('ready', flush=True); time.sleep(3); print('over', flush=True)"
    # In a session of its own the group would be an orphan, which the terminal's signals do not stop.
    process = subprocess.Popen([build / "bin" / "sentinel", "run", "--quiet", "--", sys.executable, "-c", program],
                               stdout=subprocess.PIPE, text=True, process_group=0)
    assert process.stdout.readline() == "ready\n"
    child = next(one for one in descendants(process.pid)
                 if "witness" not in pathlib.Path(f"/proc/{one}/comm").read_text())
    send(process, signal.SIGTSTP)
    assert until(lambda: state_of(child) == "T" and state_of(process.pid) == "T")
    send(process, signal.SIGCONT)
    assert until(lambda: state_of(child) in "SR" and state_of(process.pid) in "SR")
    assert process.communicate(timeout=20)[0] == "over\n" and process.returncode == 0
