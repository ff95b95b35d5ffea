"""Programs that crash, are interrupted or killed while the profile is taken, and programs that never
train: their own status is passed on, and the part of the profile that exists can be read."""
import json
import pathlib

import pytest

SMALL = pathlib.Path(__file__).resolve().parent / "scripts" / "small_training.py"
PROFILING = "3"  # the step in which a static model is profiled
OWN_FAILURE = 125
STATUS = {"abort": 128 + 6, "exit": 3, "interrupt": 128 + 2, "kill": 128 + 9, "error": 1}


@pytest.mark.parametrize("how", STATUS)
def test_while_profiling(how, sentinel, python, tmp_path):
    profile = tmp_path / "partial.sentinel"
    outcome = sentinel("record", "-o", profile, "--", python, SMALL, "--end", how, "--at", PROFILING)
    assert outcome.status == STATUS[how], outcome.err
    assert len(outcome.out.splitlines()) == int(PROFILING)
    assert "incomplete" in outcome.err
    summary = sentinel("report", profile, "summary", "--format", "json")
    assert summary.status == 0, summary.err
    read = json.loads(summary.out)
    assert read["complete"] is False and read["incomplete_reason"]
    assert read["tensors"] > 0
    shown = sentinel("report", profile, "summary")
    assert shown.status == 0 and read["incomplete_reason"] in " ".join(shown.out.split())
    assert sentinel("report", profile, "heatmap").status == 0


@pytest.mark.parametrize("how", STATUS)
def test_before_a_profile(how, sentinel, python, tmp_path):
    profile = tmp_path / "none.sentinel"
    outcome = sentinel("record", "-o", profile, "--", python, SMALL, "--end", how, "--at", "1")
    assert outcome.status == STATUS[how]
    assert not profile.exists()


@pytest.mark.parametrize("how", STATUS)
def test_under_the_plan(how, sentinel, python):
    outcome = sentinel("run", "--fast", "64M", "--", python, SMALL, "--end", how, "--at", "5")
    assert outcome.status == STATUS[how]
    assert len(outcome.out.splitlines()) == 5


def test_never_trains(sentinel, python, tmp_path):
    program = (python, "-c", "import torch; print(torch.ones(3).sum().item())")
    recorded = sentinel("record", "-o", tmp_path / "none.sentinel", "--", *program)
    assert recorded.status == OWN_FAILURE and recorded.out == "3.0\n"
    assert "no training step was seen" in recorded.err
    run = sentinel("run", "--fast", "64M", "--summary", tmp_path / "summary.json", "--", *program)
    assert run.status == 0 and run.out == "3.0\n"
    assert not (tmp_path / "summary.json").exists()


def test_too_few_steps(sentinel, python, tmp_path):
    outcome = sentinel("record", "-o", tmp_path / "none.sentinel", "--", python, SMALL, "--steps", "2")
    assert outcome.status == OWN_FAILURE
    assert "ended after 2 steps" in outcome.err


@pytest.mark.parametrize("how", ["madvise", "mremap"])
@pytest.mark.parametrize("flags", [(), ("--move", "copy")], ids=["moved", "copied"])
@pytest.mark.parametrize("threads", [1, 16])
def test_memory_that_is_taken_from_a_tensor(how, flags, threads, sentinel, python, tmp_path):
    """A page is missing of which the engine knows that it is there: nobody waits for it for ever."""
    script = tmp_path / "takes_memory.py"
    script.write_text(f"""
import ctypes, sys
sys.path.insert(0, {str(SMALL.parent)!r})
import children
training = children.Training(8192, 1 << 20)
for _ in range(6):
    training.step()
kept = training.kept[3]
kept.fill_(4.0)
children.torch.set_num_threads(int(sys.argv[2]))
libc = ctypes.CDLL(None)
libc.mremap.restype = ctypes.c_void_p
begin, length = -(-kept.data_ptr() // 4096) * 4096 + (1 << 19), 3 << 20
if sys.argv[1] == "madvise":
    assert libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), 4) == 0
else:
    libc.mremap(ctypes.c_void_p(begin), ctypes.c_size_t(length), ctypes.c_size_t(length), 1 | 4, None)
print("sum", float(kept.sum()), flush=True)
""")
    outcome = sentinel("run", "--fast", "64M", *flags, "--", python, script, how, threads)
    assert outcome.status == OWN_FAILURE and "sum" not in outcome.out, outcome.out + outcome.err
    assert "given back or moved memory that a tensor has" in outcome.err
