"""compare.py of tests/gpu without a device, with stand-ins for what it starts; what a search and a whole run come to."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from gpu_stand_ins import GPU, PYTHON, SENTINEL, write_program

import bounded
import compared
import search
import table

MODELS = compared.MODELS
SENTINELS = [one.label for one in compared.by_plan_and_by_demand() + compared.by_other_policies()]


@pytest.fixture
def measured(tmp_path):
    """measured(*options, VARIABLE=..., name=...): compare.py with the stand-ins: its process, the results, of that
    name, and the log."""
    python = write_program(tmp_path / "python", PYTHON)
    sentinel = write_program(tmp_path / "sentinel", SENTINEL)

    def run(*options, name="results", **variables):
        log, found = tmp_path / f"{name}.log", tmp_path / f"{name}.json"
        log.write_text("")
        words = [sys.executable, GPU / "compare.py", "--sentinel", sentinel, "--python", python, "--json", found,
                 *options]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100,
                              env={**os.environ, "LOG": str(log), **variables})
        return done, json.loads(found.read_text()), log.read_text().splitlines()
    return run


def ended(pid):
    """Whether a process is no more, or will be as soon as somebody asks for its status."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def comes_true(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def all_end(pids):
    return comes_true(lambda: all(map(ended, pids)))


def at_once(*calls):
    """What they return. Each waits for a limit that a slow machine keeps too."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as threads:
        return [call.result() for call in [threads.submit(call) for call in calls]]


# ---------------------------------------------------------------- commands with a limit

CHILDREN = "sleep 100 & echo $!; sleep 100 & echo $!; echo told >&2; wait"


# Tells itself to end when it has made a process, before that has a name.
EARLY = """import os, signal, subprocess
class Early(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        while len(open(sys.argv[1]).read().split()) < 2:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Early
"""
NESTED = (f"import sys; sys.path.insert(0, {str(GPU)!r}); import bounded; bounded.end_on_sigterm(); "
          "bounded.run(['sh', '-c', 'exec >' + sys.argv[1] + '; ' + sys.argv[2]], 100)")


def test_what_hangs_is_killed_with_what_it_has_started(tmp_path):
    deaf = "trap '' TERM; " + CHILDREN
    shell, stubborn, nested, left = at_once(
        lambda: bounded.run(["sh", "-c", CHILDREN], 10),
        lambda: bounded.run(["sh", "-c", deaf], 10),
        lambda: bounded.run([sys.executable, "-c", NESTED, tmp_path / "pids", deaf], 10, 3 * bounded.GRACE),
        lambda: bounded.run(["sh", "-c", "setsid sleep 60 & echo $!; wait"], 10))  # which holds the pipes
    os.kill(int(left.out), signal.SIGKILL)
    assert [outcome.status for outcome in (shell, stubborn, nested, left)] == [None] * 4
    for outcome in (shell, stubborn):
        assert outcome.err == "told\n" and len(outcome.out.split()) == 2 and all_end(outcome.out.split())
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2 and all_end(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_ended_ends_what_it_runs(tmp_path, number):
    pids = tmp_path / "pids"
    process = subprocess.Popen([sys.executable, "-c", NESTED, pids, CHILDREN], stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # or the tests' nohup stays
    begun = comes_true(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    process.send_signal(number)
    assert process.wait(timeout=30) == 128 + number
    assert begun and all_end(pids.read_text().split())


def test_who_is_ended_while_it_makes_a_process_ends_it(tmp_path):
    pids = tmp_path / "pids"
    pids.touch()
    process = subprocess.Popen([sys.executable, "-c", EARLY + NESTED, pids, CHILDREN], stderr=subprocess.DEVNULL)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert len(pids.read_text().split()) == 2 and all_end(pids.read_text().split())


def test_a_failure_has_its_reason():
    told = "warning\nRuntimeError: CUDA out of memory. Tried to allocate 2 GiB\nlast words"
    assert bounded.Ended(1, "", told).reason() == "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"
    assert bounded.Ended(1, "", "first\nlast words\n").reason() == "last words"
    assert bounded.Ended(1, "", "").reason() == "failed without a word"


# ---------------------------------------------------------------- the comparison


def test_what_is_to_be_known_first_comes_first():
    assert SENTINELS == ["Sentinel 40 %", "Sentinel", "Sentinel 20 %", "Sentinel 60 %", "Sentinel 40 %, lru",
                         "Sentinel 20 %, lru", "Sentinel 60 %, lru", "Sentinel 40 %, auto", "Sentinel 40 %, g10",
                         "Sentinel 40 %, deepum"]
    assert compared.by_other_policies([30], "8G")[-1].label == "Sentinel 30 %, file, 8G"


def test_every_contender_of_every_model_is_measured(measured):
    done, results, log = measured()
    assert done.returncode == 0, done.stderr
    assert list(results["models"]) == list(MODELS)
    for rows in results["models"].values():
        assert list(rows) == ["plain", SENTINELS[0], *list(compared.BASELINES)[1:], *SENTINELS[1:]]
        assert rows["plain"]["ms"] == 100 and rows["Sentinel 40 %, lru"]["of_plain"] == 100 / 102
        assert all(row["same"] and row["call"] == 0 for label, row in rows.items() if label != "plain")
        assert rows["Sentinel"]["summary"]["steps"][1]["phase"] == "profile"
    # A model's plain training and its first comparison, then the techniques in one process each; a contender of all
    # models before the next.
    started = [line for line in log if not line.startswith("pid")]
    assert started[:4] == [f"{MODELS[0]} none", f"{MODELS[0]} 40% plan", f"{MODELS[1]} none", f"{MODELS[1]} 40% plan"]
    assert started[10] == f"{MODELS[0]} checkpoint,save_on_cpu,none" and started[15] == f"{MODELS[0]} all plan"
    assert started[-1] == f"{MODELS[-1]} 40% deepum"
    assert results["about"]["torch"] == "2.0" and results["calls"][0]["command"] == "compare.py " + " ".join(
        map(str, done.args[2:]))
    assert "\nSentinel 40 %, g10 102.0 0.98 4.00 same\n" in re.sub(" +", " ", done.stdout)
    assert "met     Sentinel 40 %: 0.95 of unlimited" in done.stdout


def test_a_row_that_hangs_or_fails_costs_no_other(measured):
    """It hangs, it does not end after its last step, or it is one of several in a process that is killed."""
    late, each = "not over after 12 s", ("--models", "ViT", "--each", "12")
    hung, lingering, several = at_once(
        lambda: measured(*each, name="hung", HANGS="20% plan", RUNS_OUT="save_on_cpu"),
        lambda: measured(*each, "--only", "Sentinel", name="lingering", LINGERS="all plan"),
        lambda: measured(*each, "--only", "", name="several", HANGS="save_on_cpu"))
    done, results, log = hung
    rows = results["models"]["ViT"]
    assert done.returncode == 1 and "wrong or failed: ViT: Sentinel 20 %\n" in done.stderr
    assert rows["Sentinel 20 %"]["failure"] == late
    assert rows["save_on_cpu"]["failure"].startswith("CUDA out of memory")  # which is no fault here
    assert all("ms" in row for label, row in rows.items() if label not in ("Sentinel 20 %", "save_on_cpu"))
    assert all_end([line.split()[1] for line in log if line.startswith("pid")])
    done, results, _ = lingering
    assert done.returncode == 1 and results["models"]["ViT"]["Sentinel"]["failure"] == late
    assert {label: row.get("failure") for label, row in several[1]["models"]["ViT"].items()} == {
        "plain": None, "checkpoint": None, "save_on_cpu": late, "plain again": late}


def test_where_plain_training_fails_nothing_is_comparable(measured):
    done, results, log = measured("--models", "ViT", "--only", "Sentinel 40 %", RUNS_OUT="none")
    assert done.returncode == 0 and log and "ms" in results["models"]["ViT"]["Sentinel 40 %"]
    assert "\nplain PyTorch failed: not comparable\n" in done.stdout and "ViT not comparable" in done.stdout
    _, results, log = measured("--models", "ViT", "--only", "Sentinel 40 %;Sentinel", RUNS_OUT="none")
    assert log == ["ViT none"] and "Sentinel" not in results["models"]["ViT"]
    done, results, log = measured("--models", "ViT", "--only", "Sentinel 40 %;Sentinel")  # the device is free again
    assert "not comparable" not in done.stdout and len(log) > 4
    rows = results["models"]["ViT"]
    assert all(row["same"] and row["call"] == 2 for label, row in rows.items() if label.startswith("Sentinel"))
    assert "failure" not in rows["plain"] and rows["checkpoint"]["same"] and rows["plain again"]["same"]


def test_what_a_call_could_not_compare_is_measured_again(measured):
    measured("--models", "ViT", "--only", "")
    _, results, _ = measured("--models", "ViT", "--only", "Sentinel", RUNS_OUT="none")
    assert "same" not in results["models"]["ViT"]["Sentinel"]
    _, results, log = measured("--models", "ViT", "--only", "Sentinel")
    assert log and results["models"]["ViT"]["Sentinel"]["same"]


def test_the_next_call_measures_what_is_missing(measured):
    done, results, _ = measured("--models", "ViT", "--only", "Sentinel 40 %;Sentinel", "--seconds", "0")
    assert {row["failure"] for row in results["models"]["ViT"].values()} == {compared.NO_TIME}
    assert done.returncode == 0 and "open    Sentinel 40 %: 0.95 of unlimited" in done.stdout
    measured("--models", "ViT", "--only", "Sentinel 40 %")
    done, results, log = measured("--models", "ViT", "--only", "Sentinel 40 %;Sentinel", MS="125")
    assert [line for line in log if not line.startswith("pid")] == ["ViT none", "ViT all plan"]
    rows = results["models"]["ViT"]
    assert {label: row["call"] for label, row in rows.items()} == {
        **{label: 1 for label in compared.BASELINES}, "Sentinel 40 %": 1, "plain, call 3": 2, "Sentinel": 2}
    assert rows["Sentinel"]["of_plain"] == 0.8 and "failure" not in rows["Sentinel 40 %"]
    _, results, log = measured("--models", "ViT", "--only", "Sentinel 40 %;Sentinel")
    assert not log and len(results["calls"]) == 3


def test_results_of_another_machine_are_laid_aside(measured, tmp_path):
    def of_another(**about):
        earlier = json.loads((tmp_path / "results.json").read_text())
        earlier["about"].update(about)
        (tmp_path / "results.json").write_text(json.dumps(earlier))

    for model in ("ViT", "DCGAN", "GPT-2"):
        _, results, _ = measured("--models", model, "--only", "", "--seconds", "0")
        assert list(results["models"]) == [model] and len(results["calls"]) == 1
        of_another(torch="1.9")
    assert [list(json.loads((tmp_path / f"results-before-{number}.json").read_text())["models"]) for number in (1, 2)
            ] == [["ViT"], ["DCGAN"]]
    of_another(torch="2.0", devices=2)
    done, results, log = measured("--models", "ViT", "--only", "", DEVICES="0")
    assert done.returncode == 1 and "knows devices 2, of which nothing is found now" in done.stderr
    assert list(results["models"]) == ["GPT-2"] and not log and not (tmp_path / "results-before-3.json").exists()


def test_a_changed_number_is_told(measured):
    done, results, _ = measured("--models", "ViT,DCGAN", "--only", "Sentinel 40 %;Sentinel", DIFFERS="all plan")
    assert done.returncode == 1 and "wrong or failed: ViT: Sentinel, DCGAN: Sentinel\n" in done.stderr
    assert results["models"]["ViT"]["Sentinel"]["same"] is False
    assert "missed  losses to the last bit" in done.stdout


def test_plain_training_that_differs_from_itself_is_not_comparable(measured):
    done, _, _ = measured("--models", "ViT", "--only", "Sentinel", DRIFTS="none", DIFFERS="all plan")
    assert done.returncode == 1 and "wrong or failed: ViT: plain again\n" in done.stderr
    assert "plain PyTorch differs from itself: not comparable" in done.stdout


def test_a_run_that_is_refused_has_its_reason(measured):
    done, results, _ = measured("--models", "ViT", "--only", "Sentinel 20 %;Sentinel", REFUSES="20% plan")
    assert done.returncode == 1 and results["models"]["ViT"]["Sentinel 20 %"]["failure"] == "the budget is too small"
    assert "failure" not in results["models"]["ViT"]["Sentinel"]


# ---------------------------------------------------------------- the search


@pytest.mark.parametrize("most", [0, 1, 2, 3, 37, 1000])
def test_the_largest_batch(most):
    tried = []

    def trains(batch):
        tried.append(batch)
        return batch <= most
    answer = search.largest(trains, 1 << 20)
    assert answer <= most and most - answer <= answer // 16 and len(tried) < 25
    assert search.found("".join(f"{search.told(batch, batch <= most)}\n" for batch in tried)) == (answer or None)


def test_the_search_ends_where_it_is_told_to():
    assert search.largest(lambda batch: True, 20) == 20
    assert search.found("sentinel: batch 4 ...\nsentinel: batch 4 fails with status 1\n") is None


# ---------------------------------------------------------------- what it comes to


def whole_results():
    """All that a device gives, all aims met."""
    sentinel = {"ms": 101.0, "of_plain": 100 / 100.5, "same": True, "peak_bytes": 1,
                "summary": {"steps": [{"phase": "profile", "ms": 201.0}]}}
    others = {"plain": {"ms": 100.0, "peak_bytes": 1}, "plain again": {"ms": 100.0, "same": True, "peak_bytes": 1},
              "checkpoint": {"ms": 130.0, "of_plain": 0.7, "same": True, "peak_bytes": 1},
              "save_on_cpu": {"failure": "CUDA out of memory"}}
    row = {"limit_bytes": 4 << 30, "size": "small", "plain": {"batch": 3, "over": True},
           "sentinel": {"batch": 15, "over": True}}
    slow = {**sentinel, "of_plain": 0.9}
    rate = {"in": 50.0, "out": 50.0, "both": 80.0}
    return {"about": {"device": "a card", "driver": "1", "cuda": "13", "torch": "2", "sources": "abc",
                      "options": {"size": "full", "gpu memory": "pools"}}, "calls": [{}],
            "steps": {name: {"status": 0} for name in table.TESTS},
            "movement": {kind: dict(rate) for kind in ("plain", "pools", "managed")},
            "probe": {},
            "mapping": {"alone": {"map": 60.25, "unmap": 30.0}, "of 16 together": {"map": 9.0, "unmap": 8.0}},
            "models": {model: {**others, **{label: dict(slow if "lru" in label else sentinel) for label in SENTINELS}}
                       for model in MODELS},
            "largest": {model: json.loads(json.dumps(row)) for model in MODELS[:3]}}


def verdicts(data):
    return {aim: verdict for aim, _, verdict in table.verdicts(data)}


AIMS = ["losses to the last bit", "Sentinel 40 %: 0.95 of unlimited", "over the best other > 1",
        "largest batch, times: 4.2", "profiled step, in plain steps", "ample memory: overhead < 1 %",
        "movement: 95 % of the link", "tests and memory checker"]


def test_all_aims_are_met():
    data = whole_results()
    assert verdicts(data) == {**dict.fromkeys(AIMS, "met"), "profiled step, in plain steps": "known"}
    told = {aim: measured for aim, measured, _ in table.verdicts(data)}
    assert told["largest batch, times: 4.2"] == "mean 5.00"
    assert told["profiled step, in plain steps"].startswith("ResNet-152 2.00")
    assert told["ample memory: overhead < 1 %"].endswith("DCGAN 0.5 %")
    assert told["over the best other > 1"].startswith("ResNet-152 1.11")
    assert "\nalone 60.2 30.0\nof 16 together 9.0 8.0\n" in re.sub(" +", " ", table.text(data))
    assert "\nsize full, gpu memory pools\n" in table.text(data)
    assert "in 4.0 GiB" in table.text(data) and "a card, driver 1, CUDA 13, PyTorch 2" in table.text(data)


def change(data, *keys, to):
    for key in keys[:-1]:
        data = data[key]
    data[keys[-1]] = to


@pytest.mark.parametrize("keys, to, aim, verdict", [
    (("models", "ViT", "Sentinel 40 %", "of_plain"), 0.94, AIMS[1], "missed"),
    (("models", "ViT", "Sentinel 40 %"), {"failure": "no time left"}, AIMS[1], "open"),
    (("models", "ViT", "Sentinel 40 %"), {"failure": "CUDA error"}, AIMS[1], "missed"),
    (("models", "ViT", "Sentinel 60 %", "same"), False, AIMS[0], "missed"),
    (("models", "ViT", "Sentinel 20 %", "of_plain"), 0.89, AIMS[2], "missed"),
    (("models", "ViT", "Sentinel 20 %, lru"), {"failure": "no time left"}, AIMS[2], "open"),
    (("models", "ViT", "Sentinel 20 %, lru"), {"failure": "CUDA error"}, AIMS[0], "missed"),
    (("models", "DCGAN"), {}, AIMS[0], "open"),
    (("models", "ViT", "Sentinel 60 %"), {"ms": 101.0, "peak_bytes": 1}, AIMS[0], "open"),
    *((("models", "ViT", "plain"), {"failure": "CUDA out of memory"}, AIMS[aim], "not comparable")
      for aim in (0, 1, 2, 4, 5)),
    (("models", "ViT", "plain"), {"failure": "no time left"}, AIMS[1], "met"),
    (("largest", "ResNet-152", "sentinel"), {"failure": "killed"}, AIMS[3], "open"),
    (("largest",), {}, AIMS[3], "open"),
    (("largest", "ResNet-152", "sentinel", "batch"), 6, AIMS[3], "missed"),
    (("models", "ViT", "Sentinel", "of_plain"), 0.98, AIMS[5], "missed"),
    (("models", "ViT", "Sentinel", "summary"), {}, AIMS[4], "open"),
    (("movement", "managed", "both"), 75.0, AIMS[6], "missed"),
    (("movement", "pools, one by one"), {"in": 1.0, "out": 1.0, "both": 1.0}, AIMS[6], "met"),
    (("movement",), {}, AIMS[6], "open"),
    (("steps", "gpu_engine_test"), {"status": None}, AIMS[7], "missed"),
    (("steps", "gpu_engine_test"), {"status": None, "failure": "no time left"}, AIMS[7], "open"),
    (("steps", "memcheck"), {"status": 0, "failure": "no test passed"}, AIMS[7], "missed"),
    (("steps",), {}, AIMS[7], "open"),
])
def test_an_aim_is_missed_or_open(keys, to, aim, verdict):
    data = whole_results()
    change(data, *keys, to=to)
    assert verdicts(data)[aim] == verdict
    assert table.text(data)


def test_a_search_that_was_cut_short_says_so():
    data = whole_results()
    data["largest"]["ResNet-152"]["sentinel"]["over"] = False
    assert table.text(data).count("the search was cut short") == 1
