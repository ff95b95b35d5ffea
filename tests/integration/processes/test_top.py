"""What a training publishes for `sentinel top`: what its summary says, until it ends, however it does."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

import training

SCRIPT = pathlib.Path(__file__).parents[1] / "scripts" / "verified.py"


@pytest.fixture
def top(build, tmp_path, monkeypatch):
    """top(): the sessions that are published in a folder of the test's own."""
    monkeypatch.setenv("SENTINEL_STATUS", str(tmp_path / "status"))

    def look(*words):
        result = subprocess.run([build / "bin" / "sentinel", "top", *map(str, words), "--json"], capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout)["sessions"]
    return look


def begin(build, python, *words):
    return subprocess.Popen([build / "bin" / "sentinel", "run", "--fast", "40%", *words, "--", python, SCRIPT, "none",
                             "1000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(look, condition):
    for _ in range(240):
        found = look()
        if condition(found):
            return found
        time.sleep(0.5)  # each look is a process
    raise AssertionError(f"it does not come: {found}")


def planned(sessions):
    return len(sessions) == 1 and sessions[0]["guide"] == "plan" and sessions[0]["last_step"]["promoted_bytes"] > 0


def test_a_training_until_it_is_killed(build, python, top, tmp_path):
    trains = begin(build, python)
    try:
        session, = wait_for(top, planned)
        assert session["state"] == "runs" and session["managed"] and session["framework"].startswith("torch")
        assert 0 < session["peak_fast_bytes"] <= session["fast_limit_bytes"] < session["peak_unlimited_bytes"]
        assert session["moves"] and session["planned"]["promoted_bytes"] > 0
        assert session["all_steps"]["promoted_bytes"] >= session["last_step"]["promoted_bytes"]
        later, = wait_for(top, lambda now: now[0]["steps"] > session["steps"])
        assert [one["pid"] for one in top(trains.pid)] == [session["pid"]]  # the command is above it
        assert later["pid"] == session["pid"] != trains.pid
        os.kill(session["pid"], signal.SIGKILL)
        trains.wait(60)
        assert top() == []
        left, = (tmp_path / "status").iterdir()
        assert left.name.startswith(f"{session['pid']}.") and left.suffix == ".sentinel"
    finally:
        trains.terminate()
        trains.wait(60)
    again = begin(build, python)  # and removes what the dead one has left
    try:
        wait_for(top, planned)
        assert not left.exists()
    finally:
        again.terminate()
        again.wait(60)


def test_the_end_is_the_summarys(build, sentinel, python, top, tmp_path):
    """Read at the very end: the program looks at its own session once its last step is over."""
    script = tmp_path / "looks.py"
    script.write_text("import runpy, subprocess, sys\n"
                      "sys.argv = sys.argv[1:]\n"
                      "runpy.run_path(sys.argv[0], run_name='__main__')\n"
                      f"print(subprocess.run([{str(build / 'bin/sentinel')!r}, 'top', '--json'], capture_output=True,\n"
                      "      text=True).stdout.replace('\\n', ''))\n")
    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", "40%", "--summary", summary, "--", python, script, SCRIPT)
    assert outcome.status == 0, outcome.err
    session, = json.loads(outcome.out.splitlines()[-1])["sessions"]
    summary = training.read_json(summary)
    steps = summary["steps"]
    assert session["steps"] == len(steps)
    assert session["last_step"]["ms"] == pytest.approx(steps[-1]["ms"])
    for key in ("promoted_bytes", "demoted_bytes", "demand_faults"):
        assert session["last_step"][key] == steps[-1][key]
        assert session["all_steps"][key] == sum(step[key] for step in steps)
    assert session["fast_limit_bytes"] == summary["fast_limit_bytes"]
    assert session["peak_unlimited_bytes"] == summary["peak_unlimited_bytes"]
    assert session["policy"] == summary["policy"]
    assert top() == [] and list((tmp_path / "status").iterdir()) == []  # it has said goodbye


def test_a_folder_that_cannot_be_had(sentinel, python, monkeypatch):
    monkeypatch.setenv("SENTINEL_STATUS", "/proc/nowhere")
    outcome = sentinel("run", "--fast", "40%", "--", python, SCRIPT)
    assert outcome.status == 0 and "status" not in outcome.err


def test_the_viewer_of_pytorch_reads_an_exported_step(sentinel, python, tmp_path):
    profile, snapshot, page = tmp_path / "p.sentinel", tmp_path / "s.pickle", tmp_path / "s.html"
    assert sentinel("record", "-o", profile, "--count", "ops", "--", python, SCRIPT).status == 0
    assert sentinel("export", profile, "--format", "pytorch-snapshot", "-o", snapshot).status == 0
    viewer = [python, "-W", "ignore", "-m", "torch.cuda._memory_viz"]
    told = sentinel("report", profile, "--format", "json")
    # It checks the sums of all blocks itself, and refuses what does not add up.
    stats = subprocess.run([*viewer, "stats", snapshot], capture_output=True, text=True, check=True).stdout
    assert "segments: 1" in stats and "total_allocated" in stats
    trace = subprocess.run([*viewer, "trace", snapshot], capture_output=True, text=True, check=True).stdout
    allocations = [line for line in trace.splitlines() if " = seg_" in line or " = MEM" in line]
    assert 0 < len(allocations) <= json.loads(told.out)["tensors"]
    subprocess.run([*viewer, "trace_plot", snapshot, "-o", page], check=True)
    assert "add_local_files" in page.read_text()
