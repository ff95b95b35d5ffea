"""Forked children find every tensor of their parent as it was, whatever descriptors they close, or end with an error;
and the parent's numbers stay what they are."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

import training

CHILDREN = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "children.py"
CASE = CHILDREN.with_name("cases") / "child_closes_files.py"
ALL_RIGHT = ["keeps", "closes", "writes", "threads", "later", "twice", "daemon", "outlives", "system_call",
             "process_fork", "process_forkserver", "process_spawn", "pool", "subprocess"]


@pytest.fixture(scope="module")
def losses(python, tmp_path_factory):
    """losses(how): what the training prints without Sentinel."""
    done = {}

    def lines(how):
        steps = "later" if how == "later" else "keeps"
        if steps not in done:
            report = tmp_path_factory.mktemp("plain") / "report"
            outcome = training.finish([python, CHILDREN, steps, "--report", report])
            assert outcome.status == 0, outcome.err
            done[steps] = steps_of(outcome)
        return done[steps]
    return lines


def steps_of(outcome):
    return [line for line in outcome.out.splitlines() if line.startswith("step")]


def with_children(sentinel, python, how, report, *options):
    return sentinel("run", "--fast", "36M", *options, "--", python, CHILDREN, how, "--report", report)


def read_report(report):
    for _ in range(100):  # of a child that nobody waits for
        if report.exists() and report.read_text().endswith("\n"):
            return report.read_text().split("\n")[:-1]
        time.sleep(0.1)
    return []


@pytest.mark.parametrize("how", ALL_RIGHT)
def test_children_read_what_their_parent_has(how, sentinel, python, losses, tmp_path):
    report = tmp_path / "report"
    outcome = with_children(sentinel, python, how, report)
    assert outcome.status == 0, outcome.err
    assert steps_of(outcome) == losses(how)
    assert outcome.out.splitlines()[-1] == "parent 0 wrong"
    told = read_report(report)
    assert told and set(told) == {"wrong 0"}, told
    ended = [line for line in outcome.out.splitlines() if line.startswith("child ended")]
    assert set(ended) <= {"child ended by 0"}, ended


@pytest.mark.parametrize("options", [("--move", "copy"), ("--io", "threads"), ("--checksum",), ("--checksum=off",)],
                         ids=" ".join)
@pytest.mark.parametrize("how", ["closes", "twice"])
def test_by_every_way_of_moving(how, options, sentinel, python, losses, tmp_path):
    report = tmp_path / "report"
    outcome = with_children(sentinel, python, how, report, *options)
    assert outcome.status == 0, outcome.err
    assert steps_of(outcome) == losses(how)
    assert set(read_report(report)) == {"wrong 0"}


def test_without_checksums_a_hundred_steps_later(sentinel, python, losses, tmp_path):
    report = tmp_path / "report"
    outcome = with_children(sentinel, python, "later", report, "--checksum=off")
    assert outcome.status == 0, outcome.err
    assert steps_of(outcome) == losses("later") and outcome.out.splitlines()[-1] == "parent 0 wrong"
    assert read_report(report) == ["wrong 0"]


def test_the_case_of_a_child_that_closes_its_files(sentinel, python):
    """As it was reported: twenty-four tensors, of which four fifths leave memory."""
    plain = training.finish([python, CASE])
    outcome = sentinel("run", "--fast", "20%", "--", python, CASE)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    for how in ("keeps", "closes"):
        assert f"child {how}: 0 of 24 tensors wrong status 0" in outcome.out
    assert outcome.out.endswith("parent 0 wrong\n")


@pytest.mark.parametrize("how", ["raw", "bare"])
def test_a_child_that_no_handler_knows_of_has_no_tensors(how, sentinel, python, losses, tmp_path):
    """clone() and _Fork() run no handlers of fork(): a touch is SIGSEGV, and never zeros."""
    report = tmp_path / "report"
    outcome = with_children(sentinel, python, how, report)
    assert outcome.status == 0, outcome.err
    assert steps_of(outcome) == losses(how)
    assert f"child ended by signal {signal.SIGSEGV.value}" in outcome.out
    assert read_report(report) == []
    assert outcome.out.splitlines()[-1] == "parent 0 wrong"


def test_a_child_that_only_executes_is_left_alone(sentinel, python, losses, tmp_path):
    outcome = with_children(sentinel, python, "spawned", tmp_path / "report")
    assert outcome.status == 0, outcome.err
    assert steps_of(outcome) == losses("spawned") and "child ended by 0" in outcome.out


def test_a_child_keeps_no_pipe_of_the_programs_open(sentinel, python, tmp_path):
    """The thread that serves a child holds two descriptors of its own: who waits for the end of a pipe that the child
    has closed is told of it while the child lives."""
    script = tmp_path / "pipes.py"
    script.write_text(f"""
import os, sys, time
sys.path.insert(0, {str(CHILDREN.parent)!r})
import children
training = children.Training(8192, 1 << 20)
for _ in range(6):
    training.step()
here, there = os.pipe()
child = os.fork()
if child == 0:
    os.close(there)
    wrong = training.wrong()
    time.sleep(20)
    os._exit(wrong)
os.close(there)
begun = time.monotonic()
assert os.read(here, 1) == b""
print("told after", time.monotonic() - begun < 10)
os.kill(child, 9)
""")
    outcome = sentinel("run", "--fast", "36M", "--", python, script)
    assert outcome.status == 0, outcome.err
    assert "told after True" in outcome.out


def test_a_training_that_closes_its_own_descriptors_stops(sentinel, python, tmp_path):
    script = tmp_path / "closes_own.py"
    script.write_text(f"""
import os, sys
sys.path.insert(0, {str(CHILDREN.parent)!r})
import children
training = children.Training(8192, 1 << 20)
for _ in range(6):
    training.step()
os.closerange(3, 65536)
print("wrong", training.wrong(), flush=True)
""")
    outcome = sentinel("run", "--fast", "36M", "--", python, script)
    assert outcome.status == 125, outcome.out + outcome.err
    assert "No wrong number was computed" in outcome.err and "wrong" not in outcome.out
    lost = subprocess.run(["pgrep", "-f", str(script)], capture_output=True, text=True)
    assert lost.stdout == ""


def test_files_opened_after_all_was_closed_stay_the_programs(sentinel, python, tmp_path):
    """Daemons close what they did not open and then open files of their own: nothing is read from these, and
    nothing written into them, whether training can go on or stops."""
    script = tmp_path / "opens_again.py"
    content = bytes(range(1, 129)) * (1 << 13)
    files = [tmp_path / f"own-{k}" for k in range(24)]
    script.write_text(f"""
import os, sys
sys.path.insert(0, {str(CHILDREN.parent)!r})
import children
training = children.Training(8192, 1 << 20)
for _ in range(6):
    training.step()
os.closerange(3, int(sys.argv[1]))
own = [os.open(name, os.O_RDWR) for name in sys.argv[2:]]
for _ in range(20):
    training.step()
    if sum(os.lseek(file, 0, os.SEEK_CUR) for file in own):
        os._exit(3)
print("wrong", training.wrong(), flush=True)
""")
    for highest in (4096, 65536):
        for file in files:
            file.write_bytes(content)
        outcome = sentinel("run", "--fast", "36M", "--", python, script, highest, *files)
        assert outcome.status in (0, 125), outcome.out + outcome.err
        assert outcome.status == 125 or "wrong 0" in outcome.out, outcome.out
        assert [file.name for file in files if file.read_bytes() != content] == []


@pytest.mark.parametrize("of_kind, steps, flags", [("", 0, ()), ("", 6, ("--io", "threads")), ("io_uring", 6, ()),
                                                   ("eventfd", 6, ()), ("memfd", 0, ()), ("#", 6, ("--io", "threads"))])
def test_files_under_our_numbers_stay_the_programs(of_kind, steps, flags, sentinel, python, tmp_path):
    """As where a program with a low limit of descriptors closes all and opens many of its own."""
    script = tmp_path / "takes_numbers.py"
    content = bytes(range(1, 129)) * (1 << 13)
    files = [tmp_path / f"own-{k}" for k in range(40)]
    for file in files:
        file.write_bytes(content)
    script.write_text(f"""
import os, sys
sys.path.insert(0, {str(CHILDREN.parent)!r})
import children
of_kind, steps, *names = sys.argv[1:]
training = children.Training(8192, 1 << 20)
for _ in range(int(steps)):
    training.step()
taken = []
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        if number > 2 and of_kind in os.readlink(f"/proc/self/fd/{{number}}"):
            taken.append(number)
    except OSError:
        pass
assert 0 < len(taken) <= len(names), taken
own = [os.open(name, os.O_RDWR) for name in names]
for number, file in zip(taken, own):
    os.dup2(file, number)
for _ in range(12):
    training.step()
    if sum(os.lseek(file, 0, os.SEEK_CUR) for file in own):
        os._exit(3)
print("wrong", training.wrong(), flush=True)
""")
    outcome = sentinel("run", "--fast", "64M", *flags, "--", python, script, of_kind, steps, *files)
    assert outcome.status == 125, outcome.out + outcome.err
    assert "this program has closed" in outcome.err and "wrong" not in outcome.out
    assert [file.name for file in files if file.read_bytes() != content] == []


def test_a_child_that_no_handler_announced_finds_no_zeros(sentinel, python, tmp_path):
    """Made by clone alone, it has no arena; what it maps then is never put where the arena was."""
    script = tmp_path / "raw_child.py"
    script.write_text(f"""
import ctypes, os, signal, sys
sys.path.insert(0, {str(CHILDREN.parent)!r})
import children
training = children.Training(8192, 1 << 20)
for _ in range(6):
    training.step()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
kept = training.kept[0].numpy()
for size, times in ((1 << 22, 64), (1 << 38, 4)):
    child = libc._Fork()
    if child == 0:
        for _ in range(times):
            libc.mmap(None, size, 3, 0x4022, -1, 0)  # private, anonymous, not reserved
        os._exit(1 if (kept == 0).any() else 0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV, status
training.step()
print("told")
""")
    outcome = sentinel("run", "--fast", "36M", "--", python, script)
    assert outcome.status == 0 and "told" in outcome.out, outcome.out + outcome.err
