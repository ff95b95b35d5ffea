"""run.sh and pack.sh of tests/gpu without a device: with stand-ins for what they start, and by themselves."""
import argparse
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
from gpu_stand_ins import GPU, PYTHON, SENTINEL, write_program

import bounded
import compared
import largest
import table
import torch_test
from results import sources

BUILT = """
name=$(basename "$0")
echo "$name $*" >>"$LOG"
[ "${1:-}" = --gtest_list_tests ] || echo "$name says something"
if [ "${1:-}" = --gtest_list_tests ]; then printf 'Suite.\n  Cupti\n  One\n'; exit; fi
[[ " ${HANGS:-} " == *" $name "* ]] && sleep 100
[[ " $* " == *"${CRASHES:-nothing}"* ]] && kill -SEGV $$
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
for name in gpu_engine_test gpu_device_test gpu_movement; do cp "$PROGRAMS/built" "$4/$name"; done
"""
CHECKER = 'echo "$1 $2" >>"$LOG"; [ "$2" = "${HANGS:-}" ] && sleep 100; exec "$5" "$6"\n'
DEVICE = """
[ -z "${NO_DEVICE:-}" ] || { echo "no device was found" >&2; exit 9; }
[ $# -eq 0 ] || echo "A Card, 580.1, 81559 MiB"
"""


def end_after(words, logged, place):
    """SIGTERM as soon as that has been logged."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place)
    deadline = time.monotonic() + 60
    while logged not in pathlib.Path(place["LOG"]).read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def run_sh(tmp_path):
    """run_sh(*options, VARIABLE=...): run.sh, or another script, with the stand-ins: its process, the results' text and
    the log."""
    programs, log = tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    for name, text in {"built": BUILT, "cmake": CMAKE, "ninja": "", "nvidia-smi": DEVICE,
                       "compute-sanitizer": CHECKER}.items():
        write_program(programs / name, text, "/usr/bin/env bash")
    python = write_program(tmp_path / "python", PYTHON)
    (tmp_path / "build" / "bin").mkdir(parents=True)
    (tmp_path / "build" / "lib" / "sentinel").mkdir(parents=True)
    write_program(tmp_path / "build" / "bin" / "sentinel", SENTINEL)

    def run(*options, script="run.sh", ended_after=None, **variables):
        log.write_text("")
        place = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PROGRAMS": str(programs), "LOG": str(log),
                 "SENTINEL_TOUCH_GIB": "0.1", "SENTINEL_BUILD": str(tmp_path / "build"),
                 "SENTINEL_GPU_PYTHON": str(python), **variables}
        words = [GPU / script, tmp_path / "out", *options]
        if ended_after:
            done = end_after(words, ended_after, place)
        else:
            done = subprocess.run(words, capture_output=True, text=True, env=place, timeout=100)
        results = tmp_path / "out" / "results.json"
        return done, json.loads(results.read_text()) if results.exists() else None, [
            line for line in log.read_text().splitlines() if not line.startswith("adaptor ")]
    return run


TRAVELS = pytest.mark.skipif(not all(map(os.path.exists, ("/usr/src/googletest", "/usr/include/fmt"))),
                             reason="googletest and libfmt-dev are not installed")
CASES = [f"torch_test {case}" for case in torch_test.CASES]
SMALL = ("--models", "ViT", "--only", "Sentinel 40 %;Sentinel;Sentinel 40 %, g10", "--largest", "ViT,GPT-2")


def test_run_does_everything_once(run_sh, tmp_path):
    done, results, log = run_sh(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"results.json", "report.txt"}
    assert {name: step["status"] for name, step in results["steps"].items()} == dict.fromkeys(
        ["gpu_device_test", *CASES[:1], "vmm_probe", "movement", *CASES[1:], "gpu_engine_test", "memcheck"], 0)
    assert results["movement"]["pools"] == {"call": 0, "in": 49, "out": 48, "both": 79}
    assert results["mapping"]["alone"] == {"call": 0, "map": 60, "unmap": 30}
    assert results["probe"]["kernel, 16 x 2 MiB"]["map"] == 5.0
    first, *others = SMALL[3].split(";")
    assert list(results["models"]["ViT"]) == ["plain", first, *list(compared.BASELINES)[1:], *others]
    assert results["models"]["ViT"][first]["said"] == ["sentinel: 3 ops name more than a budget of 4 GiB holds"]
    assert [line for line in log if line.startswith(("ViT", "GPT-2"))] == [
        "ViT none", "ViT 40% plan", "ViT checkpoint,save_on_cpu,none", "ViT all plan", "ViT ", "GPT-2 ", "ViT 40% g10"]
    # Whether the device works, one program computes the same, and a model has its comparison, is known first.
    assert [line.split()[0] for line in log[:log.index("ViT none")]] == ["gpu_device_test"] * 3 + ["pid"]
    movement = next(line for line in log if line.startswith("gpu_movement"))
    assert log.index("ViT 40% plan") < log.index(movement) < log.index("ViT checkpoint,save_on_cpu,none")
    assert results["largest"]["ViT"] == {"call": 0, "limit_bytes": 4 << 30, "size": "small",
                                         "plain": {"batch": 3, "over": True}, "sentinel": {"batch": 24, "over": True}}
    about = results["about"]
    assert (about["device"], about["driver"], about["torch"], about["cuda"]) == ("A Card", "580.1", "2.0", "13.0")
    assert results["calls"][0]["command"].startswith("tests/gpu/steps.py --build ")
    assert set(results["calls"][0]) == {"command", "commit", "begin"}
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "gpu_device_test says something" in report and report in done.stdout
    assert "\n  sentinel: 3 ops name more than a budget of 4 GiB holds\n" in report
    assert "missed  movement: 95 % of the link" in report and "met     tests and memory checker" in report
    done, again, log = run_sh(*SMALL)
    assert done.returncode == 0 and not log  # what was measured is not measured again
    assert again["models"] == results["models"] and table.text(results) in done.stdout


def test_a_step_that_fails_or_hangs_keeps_no_other_from_being_run(run_sh, tmp_path):
    done, results, log = run_sh("--largest", "", "--models", "ViT", "--only", "", FAILS="gpu_device_test")
    assert done.returncode == 1 and done.stdout.endswith("failed:\n  gpu_device_test\n  memcheck\n")
    assert "gpu_device_test went wrong" in (tmp_path / "out" / "report.txt").read_text()
    assert results["steps"]["movement"]["status"] == 0 and "ms" in results["models"]["ViT"]["plain"]
    short = ("--largest", "", "--models", "ViT", "--only", "")
    done, results, log = run_sh("--seconds", "12", *short, HANGS="memcheck")
    assert done.returncode == 0 and results["steps"]["memcheck"]["failure"] == compared.NO_TIME
    assert "memcheck: no time left" in done.stdout
    assert [line.split()[0] for line in log] == ["gpu_device_test"] * 3 + ["--tool"]  # the others had been passed
    done, results, log = run_sh("--step-seconds", "8", *short, HANGS="memcheck")
    assert done.returncode == 1 and "failure" not in results["steps"]["memcheck"]
    assert results["steps"]["memcheck"]["status"] is None
    assert "memcheck: killed, for its time was up" in done.stdout and done.stdout.endswith("failed:\n  memcheck\n")


def test_tests_of_which_none_passed_have_failed(run_sh):
    part = ("--steps", "gpu_engine_test,gpu_device_test,memcheck")
    done, results, _ = run_sh(*part, SKIPS="gpu_device_test")
    assert done.returncode == 1 and done.stdout.endswith("failed:\n  gpu_device_test\n  memcheck\n")
    assert "\nmemcheck: no test passed\n" in done.stdout and "missed  tests and memory checker" in done.stdout
    assert results["steps"]["memcheck"]["failure"] == "no test passed"
    done, results, log = run_sh(*part)  # the others again
    assert done.returncode == 0 and "gpu_engine_test " not in log
    assert [line.split()[0] for line in log] == ["gpu_device_test"] * 3 + ["--tool", "gpu_device_test"]
    assert "failure" not in results["steps"]["memcheck"]


def test_a_test_that_crashes_hides_no_other(run_sh):
    """What loads more of NVIDIA's libraries comes last."""
    done, results, log = run_sh("--steps", "gpu_device_test", CRASHES="Suite.One")
    assert done.returncode == 1 and results["steps"]["gpu_device_test"]["status"] == 1
    assert "Suite.One: status -11" in done.stdout and "Suite.Cupti: ok" in done.stdout
    assert [line.rpartition("=")[2] for line in log] == ["*", "Suite.One", "Suite.Cupti"]
    assert "\nfailed: Suite.One\n" in done.stdout


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


def test_results_outlive_a_folder_that_is_emptied(run_sh, tmp_path):
    """They lie in the build, too; and a build that is new goes on with those of the folder."""
    part = ("--steps", "training", "--models", "ViT", "--only", "Sentinel")
    _, first, _ = run_sh(*part)
    shutil.rmtree(tmp_path / "out")
    _, again, log = run_sh(*part)
    assert not log and again == first
    shutil.rmtree(tmp_path / "build" / "gpu-results")
    _, third, log = run_sh(*part)
    assert not log and third == first


# ---------------------------------------------------------------- the two scripts for a device that is lent


def test_the_scripts_are_short_and_their_parts_fit():
    for name, most in (("first.sh", 270), ("second.sh", 430)):
        text = (GPU / name).read_text()
        seconds = [int(number) for number in re.findall(r"^(?:part|steps) (\d+) ", text, re.M)]
        assert len(text) < 2000 and len(seconds) >= 5 and sum(seconds) <= most, name


def test_the_first_script_measures_one_model_in_chunks_of_two_sizes(run_sh, tmp_path):
    done, results, log = run_sh(script="first.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(results["models"]) == ["BERT-large"]
    sizes = ["Sentinel 40 %", "Sentinel 40 %, chunks of 16M"]
    assert list(results["models"]["BERT-large"]) == ["plain", *sizes]
    assert list(results["steps"]) == ["gpu_device_test", "torch_test straight", "vmm_probe", "movement"]
    assert {"BERT-large 40% plan", "BERT-large 40% plan 16M"} <= set(log)
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "0.1 GiB of the host's memory touched" in report and "\nMem: " in report
    adaptor = (tmp_path / "log").read_text().splitlines()[0]
    assert adaptor == f"adaptor {tmp_path / 'build' / 'lib' / 'sentinel'}"  # before anything is timed
    assert report.index("== build") < report.index("== tests of the device") < report.index("== one model")


def test_the_second_script_goes_on_with_the_better_size(run_sh, tmp_path):
    run_sh(script="first.sh", FASTER="16M")
    done, results, log = run_sh(script="second.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(results["models"]["ViT"]) == ["plain", *(f"{label}, chunks of 16M" for label in (
        "Sentinel 40 %", "Sentinel", "Sentinel 40 %, lru"))]
    assert results["models"]["BERT-large"]["Sentinel 40 %, chunks of 16M"]["call"] == 2  # not measured again
    assert results["largest"]["BERT-large"]["sentinel"]["batch"] == 24
    assert {"torch_test forked", "torch_test a_stream_that_ends", "memcheck"} <= set(results["steps"])


def test_a_part_that_fails_or_hangs_keeps_no_other_from_being_run(run_sh, tmp_path):
    done, results, _ = run_sh(script="first.sh", FAILS="gpu_device_test", NO_ADAPTOR="1", CRASHES="Suite.Cupti")
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "no PyTorch to build for" in report and "gpu-adaptor.log" in report
    assert results["steps"]["movement"]["status"] == 0 and "ms" in results["models"]["BERT-large"]["plain"]
    assert "failed: build (1) tests of the device (1)" in done.stdout


def test_a_part_of_a_script_ends_in_its_time(tmp_path):
    script = f"set -uo pipefail\nsource {GPU}/device.sh\npart 1 'that hangs' sleep 1000\npart 10 next echo 'is run'"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "SENTINEL_BUILD": str(tmp_path)})
    assert done.stdout.splitlines()[-2:] == ["is run", "failed: that hangs (124)"], done.stderr


def test_whoever_ends_a_script_finds_what_it_has_measured(run_sh, tmp_path):
    done, results, _ = run_sh(script="first.sh", ended_after="40% plan 16M", HANGS="40% plan 16M")
    assert done.returncode == 143 and "ms" in results["models"]["BERT-large"]["Sentinel 40 %"]


def test_a_part_of_it(run_sh):
    _, results, log = run_sh("--steps", "movement,gpu_engine_test")
    assert [line.split()[0] for line in log] == ["gpu_movement", "gpu_engine_test"] and not results["models"]
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
    assert done.returncode == 0 and "no NVIDIA GPU here" in done.stderr and log == ["gpu_engine_test "]
    done, _, log = run_sh(NO_COMPILER="1")
    assert done.returncode == 1 and "failed: the build" in done.stderr and not log
    assert (tmp_path / "out" / "report.txt").read_text().endswith(
        f"no compiler\nfailed: the build ({tmp_path / 'build' / 'gpu-build.log'})\n")


def test_what_travelled_is_of_the_sources_that_are_here(run_sh, tmp_path):
    runtime = tmp_path / "build" / "gpu-travel" / "runtime"
    (runtime / "bin").mkdir(parents=True)
    shutil.copy(tmp_path / "build" / "bin" / "sentinel", runtime / "bin")
    here = subprocess.run([sys.executable, GPU / "results.py"], capture_output=True, text=True, timeout=100).stdout
    assert here == f"{sources()}\n"
    for told, packed in (("unknown", None), ("abc", "abc\n")):
        if packed:
            (runtime / "sources").write_text(packed)
        done, found, log = run_sh("--steps", "gpu_engine_test")
        assert done.returncode == 1 and found is None and not log
        assert f"is built of other sources ({told}) than those here ({here.strip()})" in done.stderr
        assert "build these and call tests/gpu/pack.sh" in (tmp_path / "out" / "report.txt").read_text()
    (runtime / "sources").write_text(here)
    done, _, log = run_sh("--steps", "gpu_engine_test")
    assert done.returncode == 0, done.stderr


@TRAVELS
def test_what_travels_is_of_the_build_that_is_named(build, tmp_path):
    """And up to date: nothing travels where it cannot be built."""
    made = tmp_path / "build"
    (made / "bin").mkdir(parents=True)
    (made / "lib").mkdir()
    for file in ("bin/sentinel", "lib/libsentinel.so"):
        shutil.copy2(build / file, made / file)
    (made / "lib" / "sentinel").symlink_to(build / "lib" / "sentinel")
    source = tmp_path / "source.cpp"
    source.touch()
    (made / "build.ninja").write_text("rule compiled\n  command = false\n  generator = 1\n"
                                      f"build bin/sentinel: compiled\nbuild lib/libsentinel.so: compiled {source}\n"
                                      "build lib/sentinel/torch.stamp: phony\n")
    pack = [GPU / "pack.sh"]
    place = {**os.environ, "SENTINEL_BUILD": str(made)}
    os.utime(made / "lib" / "libsentinel.so", (1, 1))
    done = subprocess.run(pack, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 1 and "FAILED: lib/libsentinel.so" in done.stderr and not done.stdout
    assert not (made / "gpu-travel").exists()
    os.utime(made / "lib" / "libsentinel.so")
    done = subprocess.run(pack, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 0 and done.stdout == f"{made / 'gpu-travel'}\n", done.stderr
    runtime = made / "gpu-travel" / "runtime"
    assert (runtime / "sources").read_text() == f"{sources()}\n"
    assert os.access(runtime / "bin" / "sentinel", os.X_OK) and (runtime / "lib" / "libsentinel.so").exists()
    assert not (runtime / "lib" / "sentinel").is_symlink()  # what does not travel is taken out of a copy


@TRAVELS
def test_it_builds_of_what_travels_along_and_tests_what_needs_no_device(tmp_path):
    """With the compiler that is here; nothing else of this machine is found."""
    programs = tmp_path / "programs"
    programs.mkdir()
    write_program(programs / "nvidia-smi", "raise SystemExit(1)")
    place = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SENTINEL_BUILD": str(tmp_path / "build"),
             "CMAKE_BUILD_TYPE": "Debug", "GTEST_FILTER": "GpuEngineTest.What*"}
    if shutil.which("ccache"):
        place["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    done = subprocess.run([GPU / "pack.sh"], capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 0 and "nothing is built here: only the engine will be tested" in done.stderr
    done = subprocess.run([GPU / "run.sh", tmp_path / "out"], capture_output=True, text=True, env=place, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no NVIDIA GPU here: only what needs none is tested" in done.stderr and "  PASSED  " in done.stdout
    assert all((tmp_path / "build" / "gpu" / program).exists() for program in ("gpu_device_test", "gpu_movement"))
