"""tests/gpu without a device: its scripts with stand-ins for what they start, its models on the processor, its build
as far as it goes."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

GPU = pathlib.Path(__file__).resolve().parent.parent / "gpu"
sys.path.insert(0, str(GPU))
import bounded  # noqa: E402
import compared  # noqa: E402
import largest  # noqa: E402
import search  # noqa: E402
import table  # noqa: E402
import torch_test  # noqa: E402
from results import sources  # noqa: E402
from steps import CHECKED  # noqa: E402

MODELS = compared.MODELS
SENTINELS = [one.label for one in compared.by_plan_and_by_demand() + compared.by_other_policies()]


def write_program(path, text, interpreter=sys.executable):
    path.write_text(f"#!{interpreter}\n{text}")
    path.chmod(0o755)
    return path


# A Python that has PyTorch and a device: it knows of both, and trains by the book (train.py's options).
PYTHON = """
import json, os, sys, time
if sys.argv[1] == "-c":
    print(json.dumps({"torch": "2.0", "cuda": "13.0", "devices": int(os.environ.get("DEVICES", 1))}))
    sys.exit()
if sys.argv[1].endswith("cases.py"):
    sys.exit(print(f"{sys.argv[2]} trains"))
model, flags = sys.argv[2], dict(zip(sys.argv[3:-1], sys.argv[4:]))
with open(os.environ["LOG"], "a") as log:
    log.write(f"{model} {flags.get('--techniques', os.environ.get('UNDER', ''))}\\n")
if "--largest" in sys.argv:
    print("batch 1 trains\\nbatch 2 trains\\nbatch 4 fails\\nbatch 3 trains", file=sys.stderr, flush=True)
    sys.exit(time.sleep(100) if os.environ.get("HANGS") == "plain's search" else 0)
if os.environ.get("UNDER") and os.environ.get("UNDER") == os.environ.get("REFUSES"):
    sys.exit("the budget is too small")
records = []
for technique in flags.get("--techniques", "none").split(","):
    under = os.environ.get("UNDER", technique)
    if under == os.environ.get("HANGS"):
        time.sleep(100)
    ms = {"checkpoint": 130.0, "save_on_cpu": 200.0, "none": 100.0}.get(under, float(os.environ.get("MS", 102.0)))
    if under == os.environ.get("RUNS_OUT"):
        records.append({"technique": technique, "failure": "CUDA out of memory. Tried to allocate"})
    else:
        loss = "0x2p+0" if under == os.environ.get("DIFFERS") or technique == os.environ.get("DRIFTS") and records \\
            else "0x1p+0"
        records.append({"technique": technique, "peak_bytes": 10 ** 10,
                        "steps": [{"loss": loss, "ms": ms + (900 if n < 4 else 0)} for n in range(10)]})
    with open(flags["--json"], "w") as file:
        json.dump(records, file)
if os.environ.get("UNDER") and os.environ.get("UNDER") == os.environ.get("LINGERS"):
    time.sleep(100)
"""

# `sentinel run` and `sentinel fit`, which starts the command in a process of its own.
SENTINEL = """
import json, os, subprocess, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("sentinel 0"))
command = words[words.index("--") + 1:]
flags = dict(zip(words, words[1:words.index("--")]))
assert flags["--tiers"] == "fast=gpu0,slow=host" and "--quiet" in words
if words[0] == "fit":
    begin = int(flags["--from"])
    print(f"sentinel: batch {begin} ...\\nsentinel: batch {begin} trains\\nsentinel: batch {8 * begin} trains\\n"
          f"sentinel: batch {16 * begin} fails with status 1", file=sys.stderr, flush=True)
    assert command[command.index("--batch") + 1] == "{}"
    if os.environ.get("HANGS") == "fit":
        time.sleep(100)
    sys.exit(print(8 * begin))
under = " ".join([flags.get("--fast", "all"), flags.get("--policy", "plan")])
begin = subprocess.Popen(command, env={**os.environ, "UNDER": under})
with open(os.environ["LOG"], "a") as log:
    log.write(f"pid {begin.pid}\\n")
status = begin.wait()
if status == 0 and "--summary" in flags:
    times = {"warmup": 102.0, "profile": 250.0, "steady": 102.0}
    steps = [{"phase": phase, "ms": ms} for phase, ms in times.items()]
    with open(flags["--summary"], "w") as file:
        json.dump({"peak_fast_bytes": 4 * 10 ** 9, "steps": steps}, file)
sys.exit(status)
"""


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
        assert list(rows) == [*compared.BASELINES, *SENTINELS]
        assert rows["plain"]["ms"] == 100 and rows["Sentinel 40 %, lru"]["of_plain"] == 100 / 102
        assert all(row["same"] and row["call"] == 0 for label, row in rows.items() if label != "plain")
        assert rows["Sentinel"]["summary"]["steps"][1]["phase"] == "profile"
    # Plain PyTorch and its techniques in one process; a contender of all models before the next.
    started = [line for line in log if not line.startswith("pid")]
    assert started[:6] == [*(f"{model} none,checkpoint,save_on_cpu,none" for model in MODELS), f"{MODELS[0]} 40% plan"]
    assert started[10] == f"{MODELS[0]} all plan" and started[-1] == f"{MODELS[-1]} 40% deepum"
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


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 37, 1000])
def test_the_largest_batch(largest):
    tried = []

    def trains(batch):
        tried.append(batch)
        return batch <= largest
    answer = search.largest(trains, 1 << 20)
    assert answer <= largest and largest - answer <= answer // 16 and len(tried) < 25
    assert search.found("".join(f"{search.told(batch, batch <= largest)}\n" for batch in tried)) == (answer or None)


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
    (("steps", "racecheck"), {"status": None}, AIMS[7], "missed"),
    (("steps", "racecheck"), {"status": None, "failure": "no time left"}, AIMS[7], "open"),
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


# ---------------------------------------------------------------- run.sh

BUILT = """
name=$(basename "$0")
echo "$name $*" >>"$LOG"
echo "$name says something"
[[ " ${HANGS:-} " == *" $name "* ]] && sleep 100
if [[ " ${FAILS:-} " == *" $name "* ]]; then echo "$name went wrong" >&2; exit 1; fi
if [[ $name == *_test ]]; then
  [[ " ${SKIPS:-} " == *" $name "* ]] && count=0 || count=3
  echo "[  PASSED  ] $count tests."
fi
if [ $name = gpu_movement ]; then
  echo '{"movement": {"plain": {"in": 50, "out": 50, "both": 80}, "pools": {"in": 49, "out": 48, "both": 79},' \\
    '"managed": {"in": 40, "out": 40, "both": 60}}, "mapping": {"alone": {"map": 60, "unmap": 30}}}' >"$1"
fi
"""
CMAKE = """
[ -z "${NO_COMPILER:-}" ] || { echo "no compiler"; exit 1; }
mkdir -p "$4"
for name in pool_engine_test gpu_device_test gpu_movement; do cp "$PROGRAMS/built" "$4/$name"; done
"""
CHECKER = 'echo "$1 $2" >>"$LOG"; [ "$2" = "${HANGS:-}" ] && sleep 100; exec "$5" "$6"\n'
DEVICE = """
[ -z "${NO_DEVICE:-}" ] || { echo "no device was found" >&2; exit 9; }
[ $# -eq 0 ] || echo "A Card, 580.1, 81559 MiB"
"""


@pytest.fixture
def run_sh(tmp_path):
    """run_sh(*options, VARIABLE=...): run.sh with the stand-ins: its process, the results' text and the log."""
    programs, log = tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    for name, text in {"built": BUILT, "cmake": CMAKE, "ninja": "", "nvidia-smi": DEVICE,
                       "compute-sanitizer": CHECKER}.items():
        write_program(programs / name, text, "/usr/bin/env bash")
    python = write_program(tmp_path / "python", PYTHON)
    (tmp_path / "build" / "bin").mkdir(parents=True)
    write_program(tmp_path / "build" / "bin" / "sentinel", SENTINEL)

    def run(*options, **variables):
        log.write_text("")
        place = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PROGRAMS": str(programs), "LOG": str(log),
                 "SENTINEL_BUILD": str(tmp_path / "build"), "SENTINEL_GPU_PYTHON": str(python), **variables}
        done = subprocess.run([GPU / "run.sh", tmp_path / "out", *options], capture_output=True, text=True, env=place,
                              timeout=100)
        results = tmp_path / "out" / "results.json"
        return done, json.loads(results.read_text()) if results.exists() else None, log.read_text().splitlines()
    return run


CASES = [f"torch_test {case}" for case in torch_test.CASES]
SMALL = ("--models", "ViT", "--only", "Sentinel 40 %;Sentinel;Sentinel 40 %, g10", "--largest", "ViT,GPT-2")


def test_run_does_everything_once(run_sh, tmp_path):
    done, results, log = run_sh(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"results.json", "report.txt"}
    assert {name: step["status"] for name, step in results["steps"].items()} == dict.fromkeys(
        ["pool_engine_test", "gpu_device_test", "memcheck", "racecheck", "movement", *CASES], 0)
    assert results["movement"]["pools"] == {"call": 0, "in": 49, "out": 48, "both": 79}
    assert results["mapping"]["alone"] == {"call": 0, "map": 60, "unmap": 30}
    assert list(results["models"]["ViT"]) == [*compared.BASELINES, *SMALL[3].split(";")]
    assert [line for line in log if line.startswith(("ViT", "GPT-2"))] == [
        "ViT none,checkpoint,save_on_cpu,none", "ViT 40% plan", "ViT all plan", "ViT ", "GPT-2 ", "ViT 40% g10"]
    assert results["largest"]["ViT"] == {"call": 0, "limit_bytes": 4 << 30, "size": "small",
                                         "plain": {"batch": 3, "over": True}, "sentinel": {"batch": 24, "over": True}}
    about = results["about"]
    assert (about["device"], about["driver"], about["torch"], about["cuda"]) == ("A Card", "580.1", "2.0", "13.0")
    assert results["calls"][0]["command"].startswith("tests/gpu/run.sh --build ")
    assert set(results["calls"][0]) == {"command", "commit", "begin"}
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "gpu_device_test says something" in report and report in done.stdout
    assert "missed  movement: 95 % of the link" in report and "met     tests and memory checker" in report
    done, again, log = run_sh(*SMALL)
    assert done.returncode == 0 and not log  # what was measured is not measured again
    assert again["models"] == results["models"] and table.text(results) in done.stdout


def test_a_step_that_fails_or_hangs_keeps_no_other_from_being_run(run_sh, tmp_path):
    done, results, log = run_sh("--largest", "", "--models", "ViT", "--only", "", FAILS="gpu_device_test racecheck")
    assert done.returncode == 1 and done.stdout.endswith("failed:\n  gpu_device_test\n  memcheck\n  racecheck\n")
    assert "gpu_device_test went wrong" in (tmp_path / "out" / "report.txt").read_text()
    assert results["steps"]["movement"]["status"] == 0 and "ms" in results["models"]["ViT"]["plain"]
    short = ("--largest", "", "--models", "ViT", "--only", "")
    done, results, log = run_sh("--seconds", "12", *short, HANGS="memcheck")
    assert done.returncode == 0 and results["steps"]["memcheck"]["failure"] == compared.NO_TIME
    assert "memcheck: no time left" in done.stdout and "racecheck: no time left" in done.stdout
    assert [line.split()[0] for line in log] == ["gpu_device_test", "--tool"]  # the others had been passed
    done, results, log = run_sh("--step-seconds", "8", *short, HANGS="memcheck")
    assert done.returncode == 1 and "failure" not in results["steps"]["memcheck"]
    assert results["steps"]["memcheck"]["status"] is None and results["steps"]["racecheck"]["status"] == 0
    assert "memcheck: killed, for its time was up" in done.stdout and done.stdout.endswith("failed:\n  memcheck\n")


def test_tests_of_which_none_passed_have_failed(run_sh):
    part = ("--steps", "pool_engine_test,gpu_device_test,memcheck,racecheck")
    done, results, _ = run_sh(*part, SKIPS="gpu_device_test")
    assert done.returncode == 1 and done.stdout.endswith("failed:\n  gpu_device_test\n  memcheck\n  racecheck\n")
    assert "\nmemcheck: no test passed\n" in done.stdout and "missed  tests and memory checker" in done.stdout
    assert results["steps"]["racecheck"]["failure"] == "no test passed"
    done, results, log = run_sh(*part)  # the others again
    assert done.returncode == 0 and "pool_engine_test " not in log and len(log) == 5
    assert "failure" not in results["steps"]["racecheck"]


def test_results_of_other_options_are_laid_aside(run_sh, tmp_path):
    part = ("--steps", "training,largest", "--models", "ViT", "--only", "Sentinel", "--largest", "ViT")
    _, pools, _ = run_sh(*part)
    for n, other in enumerate([("--gpu-memory", "managed"), ("--size", "small"), ("--batch", "8"),
                               ("--limit", str(1 << 30)), ("--largest-size", "tiny"), ()], 1):
        done, results, log = run_sh(*part, *other)
        assert f"results.json is about other options: laid aside as results-before-{n}.json\n" in done.stderr
        assert log.count("ViT all plan") == 1 and len(results["calls"]) == 1
        assert results["models"]["ViT"]["Sentinel"]["call"] == results["largest"]["ViT"]["call"] == 0
        assert (results["about"] == pools["about"]) == (not other)
    assert json.loads((tmp_path / "out" / "results-before-1.json").read_text()) == pools
    assert json.loads((tmp_path / "out" / "results-before-4.json").read_text())["about"]["options"]["batch"] == 8
    _, results, log = run_sh(*part)
    assert not log and len(results["calls"]) == 1  # nothing was measured


def test_a_part_of_it(run_sh):
    _, results, log = run_sh("--steps", "movement,pool_engine_test")
    assert [line.split()[0] for line in log] == ["pool_engine_test", "gpu_movement"] and not results["models"]
    done, _, _ = run_sh("--steps", "movment")
    assert done.returncode == 2 and "there is no step movment" in done.stderr


def test_a_search_that_is_ended_keeps_what_it_has_found(run_sh):
    """Plain PyTorch's has a third of the time."""
    done, results, _ = run_sh("--steps", "largest", "--largest", "ViT", "--seconds", "33", HANGS="plain's search")
    assert results["largest"]["ViT"]["plain"] == {"batch": 3, "over": False}
    assert done.returncode == 0 and "the search was cut short" in done.stdout
    _, results, _ = run_sh("--steps", "largest", "--largest", "ViT")
    assert results["largest"]["ViT"]["plain"] == {"batch": 3, "over": True} and results["largest"]["ViT"]["call"] == 1


def test_so_does_sentinels(monkeypatch):
    ends = iter([bounded.Ended(0, "", "batch 3 trains\n"),
                 bounded.Ended(None, "", "sentinel: batch 24 trains\nsentinel: batch 48 ...\n")])
    monkeypatch.setattr(bounded, "run", lambda words, seconds: next(ends))
    args = argparse.Namespace(python="python", device="cuda", size="full", largest_size="small", limit=4 << 30,
                              sentinel="sentinel", gpu_memory="pools")
    row = largest.of_model(args, "ViT", 30)
    assert row["plain"] == {"batch": 3, "over": True} and row["sentinel"] == {"batch": 24, "over": False}
    assert not largest.over(row)


def test_what_is_missing_is_told(run_sh, tmp_path):
    done, _, _ = run_sh("--steps", "training", DEVICES="0")
    assert done.returncode == 1 and "has no PyTorch with CUDA (SENTINEL_GPU_PYTHON names another)" in done.stdout
    (tmp_path / "build" / "bin" / "sentinel").unlink()
    done, results, _ = run_sh("--steps", "training", "--models", "ViT")
    assert done.returncode == 1 and set(results["models"]["ViT"]) == set(compared.BASELINES)
    assert "with Sentinel: no command runs here; the others were measured" in done.stdout
    done, _, log = run_sh(NO_DEVICE="1")
    assert done.returncode == 0 and "no NVIDIA GPU here" in done.stderr and log == ["pool_engine_test "]
    done, _, log = run_sh(NO_COMPILER="1")
    assert done.returncode == 1 and "failed: the build" in done.stderr and not log
    assert (tmp_path / "out" / "report.txt").read_text() == "no compiler\n"


def test_what_travelled_is_of_the_sources_that_are_here(run_sh, tmp_path):
    runtime = tmp_path / "build" / "gpu-travel" / "runtime"
    (runtime / "bin").mkdir(parents=True)
    shutil.copy(tmp_path / "build" / "bin" / "sentinel", runtime / "bin")
    here = subprocess.run([sys.executable, GPU / "results.py"], capture_output=True, text=True, timeout=100).stdout
    assert here == f"{sources()}\n"
    for told, packed in (("unknown", None), ("abc", "abc\n")):
        if packed:
            (runtime / "sources").write_text(packed)
        done, found, log = run_sh("--steps", "pool_engine_test")
        assert done.returncode == 1 and found is None and not log
        assert f"is built of other sources ({told}) than those here ({here.strip()})" in done.stderr
        assert "build these and call tests/gpu/pack.sh" in (tmp_path / "out" / "report.txt").read_text()
    (runtime / "sources").write_text(here)
    done, _, log = run_sh("--steps", "pool_engine_test")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not all(map(os.path.exists, ("/usr/src/googletest", "/usr/include/fmt"))),
                    reason="googletest and libfmt-dev are not installed")
def test_what_travels_is_of_the_build_that_is_named(build, tmp_path):
    """And refused where that is older than the sources."""
    made = tmp_path / "build"
    (made / "bin").mkdir(parents=True)
    (made / "lib").mkdir()
    for file in ("bin/sentinel", "lib/libsentinel.so"):
        shutil.copy2(build / file, made / file)
    (made / "lib" / "sentinel").symlink_to(build / "lib" / "sentinel")
    pack = [GPU / "pack.sh"]
    place = {**os.environ, "SENTINEL_BUILD": str(made)}
    for file in ("bin/sentinel", "lib/libsentinel.so"):
        os.utime(made / file, (1, 1))
    done = subprocess.run(pack, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 1 and f"is newer than what is built in {made}; build first" in done.stderr
    assert not (made / "gpu-travel").exists()
    for file in ("bin/sentinel", "lib/libsentinel.so"):
        os.utime(made / file)
    done = subprocess.run(pack, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 0 and done.stdout == f"{made / 'gpu-travel'}\n", done.stderr
    runtime = made / "gpu-travel" / "runtime"
    assert (runtime / "sources").read_text() == f"{sources()}\n"
    assert os.access(runtime / "bin" / "sentinel", os.X_OK) and (runtime / "lib" / "libsentinel.so").exists()


# ---------------------------------------------------------------- what they start


@pytest.mark.parametrize("model", MODELS)
def test_a_technique_changes_no_loss(python, tmp_path, model):
    """Small models on the processor."""
    words = [python, GPU / "train.py", model, "--device", "cpu", "--size", "tiny", "--batch", "2", "--steps", "3",
             "--techniques", "none,checkpoint,save_on_cpu,none", "--json", tmp_path / "run.json"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "run.json").read_text())
    assert [run["technique"] for run in runs] == ["none", "checkpoint", "save_on_cpu", "none"]
    losses = [[step["loss"] for step in run["steps"]] for run in runs]
    assert losses.count(losses[0]) == 4 and len(set(losses[0])) == 3


def test_plain_pytorch_looks_for_its_largest_batch(python):
    words = [python, GPU / "train.py", "ViT", "--device", "cpu", "--size", "tiny", "--steps", "1", "--largest",
             "--most", "3"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.stdout == "3\n" and "batch 1 trains\nbatch 2 trains\nbatch 3 trains\n" in done.stderr


def cases(python, sentinel, *names):
    words = [sys.executable, GPU / "torch_test.py", "--sentinel", sentinel, "--python", python, "--device", "cpu",
             "--cases", ",".join(names)]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=140)


def test_programs_print_the_same_in_half_of_their_memory(python, build):
    """On the processor, and so what a device has in common with it: that these programs train, and are compared."""
    done = cases(python, build / "bin" / "sentinel", "straight", "forked", "another_thread", "another_device")
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(told) == ["straight", "forked", "another_thread", "another_device"]
    assert told["straight"] == told["another_thread"] == told["another_device"] != told["forked"]
    assert "tensors: " in told["forked"]


@pytest.mark.parametrize("wrong, told", [
    ("print('more')", "plain: the end; Sentinel: more"),
    ("sys.exit('lost')", "Sentinel: status 1: lost"),
    ("print('CUDA: initialization error', file=sys.stderr)", "CUDA: initialization error"),
    ("print('[W1125 10:02:03.456 Context.cpp:80] Warning: said by both', file=sys.stderr)", None),
    ("print('[W1125 10:02:03.456 Context.cpp:80] Warning: said by one', file=sys.stderr)",
     "[W1125 10:02:03.456 Context.cpp:80] Warning: said by one"),
    ("", None)])
def test_a_program_that_does_not_is_told(tmp_path, wrong, told):
    python = write_program(tmp_path / "python", "import sys\nprint('trained')\n"
                           "print('[W1125 10:01:02.345 Context.cpp:80] Warning: said by both', file=sys.stderr)")
    sentinel = write_program(tmp_path / "sentinel", "import subprocess, sys\n"
                             f"subprocess.run(sys.argv[sys.argv.index('--') + 1:])\nsys.stdout.flush()\n{wrong}")
    done = cases(python, sentinel, "straight")
    assert done.stdout == f"straight: {told or 'trained'}\n" and done.returncode == (1 if told else 0)


def test_one_program_is_in_managed_memory(tmp_path):
    python = write_program(tmp_path / "python", "import sys\nprint(sys.argv[2])")
    sentinel = write_program(tmp_path / "sentinel", "import subprocess, sys\n"
                             f"open({str(tmp_path / 'log')!r}, 'a').write(' '.join(sys.argv[1:-5]) + '\\n')\n"
                             "subprocess.run(sys.argv[sys.argv.index('--') + 1:])")
    done = subprocess.run([sys.executable, GPU / "torch_test.py", "--sentinel", sentinel, "--python", python, "--cases",
                           "forked,managed_memory"], capture_output=True, text=True, timeout=100)
    assert done.stdout == "forked: forked\nmanaged_memory: straight\n" and done.returncode == 0
    tiers = "run --tiers fast=gpu0,slow=host"
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{tiers} --fast 50% --quiet --", f"{tiers} --gpu-memory managed --fast 50% --quiet --"]


# ---------------------------------------------------------------- the tests of a device, with drivers that are none


def device_test(build, library, *options, **variables):
    """What gpu_device_test ends with and says."""
    done = subprocess.run([build / "bin" / "gpu_device_test", *options], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "SENTINEL_CUDA": str(library), **variables})
    return done.returncode, done.stdout


def over_the_tests_driver(build, folder, text):
    """A library that has what `text` defines and, for the rest, is the tests' driver."""
    made, fake = folder / "libover.so", build / "lib" / "libsentinel_fake_cuda.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", "-o", made, "-Wl,--no-as-needed", fake,
                    f"-Wl,-rpath,{fake.parent}"], input=text, text=True, check=True, timeout=100)
    return made


# As touch_kernel.h's: it is run when it is launched.
KERNELS = """
#include <cstdint>
extern "C" {
int cuModuleLoadData(void** module, const void*) { return *module = module, 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char*) { return *function = module, 0; }
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void** arguments,
                   void**) {
  auto page = *static_cast<std::uint64_t*>(arguments[0]);
  for (auto left = *static_cast<std::uint64_t*>(arguments[1]); left > 0; --left, page += 4096) {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(page);
    if (*static_cast<std::uint64_t*>(arguments[2])) *word = left WRONG; else (void)*word;
  }
  return 0;
}
}
"""


def test_the_tests_of_a_device_skip_where_there_is_none_and_fail_where_it_refuses(build, tmp_path):
    status, out = device_test(build, tmp_path / "none.so", "--gtest_brief=1")
    assert status == 0 and "PASSED  ] 0 tests" in out and "no driver: " in out
    none = over_the_tests_driver(build, tmp_path, 'extern "C" int cuInit(unsigned) { return 100; }')
    status, out = device_test(build, none, "--gtest_brief=1")
    assert status == 0 and "PASSED  ] 0 tests" in out and "\ncuInit: " in out
    fake = build / "lib" / "libsentinel_fake_cuda.so"
    status, out = device_test(build, fake, "--gtest_filter=*HasItsName", SENTINEL_FAKE_CUDA_FAIL="cuInit:1")
    assert status == 1 and "cuInit: CUDA_ERROR_ILLEGAL_ADDRESS" in out and "SKIPPED" not in out


@pytest.mark.parametrize("driver, skipped", [
    ("sentinel_fake_cuda", ["Kernels", "PatchedKernel", "Cupti"]), ("sentinel_fake_cuda_11", ["Kernels"]),
    ("sentinel_fake_cuda_pools", ["Kernels", "InManagedMemory"])])
def test_the_tests_of_a_device_pass_with_the_tests_driver(build, driver, skipped):
    library = build / "lib" / f"lib{driver}.so"
    status, out = device_test(build, library)
    assert status == 0, out
    told = re.findall(r"\[  SKIPPED \] DeviceTest[.](\w+) ", out)
    assert all(any(part in name for name in told) for part in skipped)
    assert ("OK ] DeviceTest.TrainingsComputeTheSameInManagedMemory" in out) == ("InManagedMemory" not in skipped)
    assert "OK ] DeviceTest.MemoryAsTheDriverGivesIt" in out and f"{library} launches no kernels" in out


def test_kernels_reach_what_the_memory_checker_sees(build, tmp_path):
    """In the tests that the checker is run on; and what a kernel writes wrong is found."""
    launching = over_the_tests_driver(build, tmp_path, KERNELS.replace("WRONG", ""))
    status, out = device_test(build, launching, CHECKED)
    assert status == 0, out
    for name in ("KernelsComputeTheSameInAFewChunks", "TrainingsComputeTheSameInManagedMemory",
                 "MemoryAsTheDriverGivesItHoldsWhatIsWritten"):
        assert f"OK ] DeviceTest.{name}" in out
    wrong = over_the_tests_driver(build, tmp_path, KERNELS.replace("WRONG", "+ 1"))
    status, out = device_test(build, wrong, CHECKED)
    failed = set(re.findall(r"FAILED  \] DeviceTest[.](\w+)", out))
    assert status == 1 and failed == {"KernelsComputeTheSameInAFewChunks", "TrainingsComputeTheSameInManagedMemory",
                                      "MemoryAsTheDriverGivesItHoldsWhatIsWritten"}


def test_movement_is_measured_with_the_tests_driver(build, tmp_path):
    fake = build / "lib" / "libsentinel_fake_cuda.so"
    done = subprocess.run([build / "bin" / "gpu_movement", tmp_path / "rates.json", "32"], capture_output=True,
                          text=True, env={**os.environ, "SENTINEL_CUDA": str(fake)}, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "rates.json").read_text())
    rates, mapping = told.pop("movement"), told.pop("mapping")
    assert not told and list(rates) == ["plain", "pools", "pools, one by one", "managed",
                                               "managed, one by one"]
    assert all(row[way] > 0 for row in rates.values() for way in ("in", "out", "both"))
    assert list(mapping) == ["alone", "of 16 together"]
    assert all(row[call] > 0 for row in mapping.values() for call in ("map", "unmap"))
    lines = done.stdout.splitlines()
    assert "100 %" in lines[1] and lines[-2].startswith("alone ") and lines[-1].startswith("of 16 together ")


def test_the_build_of_its_own_names_sources_that_exist(tmp_path):
    """Whether they are all that it needs, is told by the build that this is a part of (tests/gpu/CMakeLists.txt)."""
    done = subprocess.run(["cmake", "-S", GPU, "-B", tmp_path, "-G", "Ninja"], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr
    for target in ("pool_engine_test", "gpu_device_test", "gpu_movement"):
        dry = subprocess.run(["ninja", "-C", tmp_path, "-n", target], capture_output=True, text=True, timeout=100)
        assert dry.returncode == 0 and f"Linking CXX executable {target}" in dry.stdout, dry.stdout
