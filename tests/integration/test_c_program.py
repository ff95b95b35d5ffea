"""A program in C, with a training loop of its own, gets the same profile, report and placement."""
import json
import pathlib
import subprocess

import pytest

import training

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
SMALL = ("6", "64", "2")
# Two tensors of 64 MiB and weights of 8: more than the budgets below.
LARGE = ("7", "131072", "-1")


@pytest.fixture(scope="session")
def program(build, tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "train"
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", REPOSITORY / "include",
                    HERE / "c_program" / "train.c", "-o", path, "-L", build / "lib", f"-Wl,-rpath,{build / 'lib'}",
                    "-lsentinel", "-lm"], check=True)
    return path


def losses(outcome):
    assert outcome.status == 0, outcome.err
    return [line for line in outcome.out.splitlines() if line.startswith("step ")]


@pytest.fixture(scope="session")
def profile(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    outcome = training.finish([program, *SMALL], cwd=folder)
    assert len(losses(outcome)) == 6
    return folder / "profile.sentinel"


def test_alone_it_writes_its_profile(profile):
    assert profile.exists()


@pytest.mark.parametrize("view", ["summary", "heatmap", "layers", "tensors", "sharing"])
def test_every_report(profile, sentinel, view):
    outcome = sentinel("report", profile, view)
    assert outcome.status == 0, outcome.err
    assert len(outcome.out.splitlines()) > 3


def test_its_layers_and_tensors_are_found(profile, sentinel):
    rows = json.loads(sentinel("report", profile, "layers", "--format", "json").out)["rows"]
    assert len(rows) == 4  # three marks part the step into four
    tensors = json.loads(sentinel("report", profile, "tensors", "--rows", "0", "--format", "json").out)["rows"]
    sizes = sorted(row["bytes"] for row in tensors)
    assert sizes == sorted(4 * count for count in (16 * 64, 64, 128 * 16, 128 * 64, 128, 128 * 64))
    assert all(row["hotness"] > 0 for row in tensors)


MADE_BEFORE = """
#include "sentinel/sentinel.h"
enum { PAGES = 64, PAGE = 4096 };
static void touch(char *memory) { for (int i = 0; i < PAGES; i++) memory[i * PAGE] += 1; }
int main(void) {
  char *first = sentinel_malloc(PAGES * PAGE), *second = sentinel_malloc(PAGES * PAGE);
  if (sentinel_start_profile() != 0) return 1;
  touch(first);
  sentinel_add_layer();
  touch(second);
  sentinel_add_layer();
  return sentinel_end_profile();
}
"""


def test_layers_that_allocate_nothing_have_their_accesses(build, sentinel, tmp_path):
    source, program = tmp_path / "before.c", tmp_path / "before"
    source.write_text(MADE_BEFORE)
    subprocess.run(["cc", "-O1", "-I", REPOSITORY / "include", source, "-o", program, "-L", build / "lib",
                    f"-Wl,-rpath,{build / 'lib'}", "-lsentinel"], check=True)
    outcome = training.finish([program], cwd=tmp_path, env={"SENTINEL_EXACT": "1"})
    assert outcome.status == 0, outcome.err
    rows = json.loads(sentinel("report", tmp_path / "profile.sentinel", "layers", "--format", "json").out)["rows"]
    opened = {row["name"]: row["reads"] + row["writes"] for row in rows}
    assert opened["layer 1"] == opened["layer 2"] == 64


def test_a_second_start_is_refused(program, build, tmp_path):
    source = tmp_path / "twice.c"
    source.write_text('#include <stdio.h>\n#include "sentinel/sentinel.h"\n'
                      "int main(void) {\n"
                      "  int ended = sentinel_end_profile(), first = sentinel_start_profile();\n"
                      "  int second = sentinel_start_profile();\n"
                      '  printf("%d %d %d %s\\n", ended < 0, first, second < 0, sentinel_last_error());\n}\n')
    subprocess.run(["cc", "-I", REPOSITORY / "include", source, "-o", tmp_path / "twice", "-L", build / "lib",
                    f"-Wl,-rpath,{build / 'lib'}", "-lsentinel"], check=True)
    outcome = training.finish([tmp_path / "twice"], cwd=tmp_path)
    assert outcome.status == 0 and outcome.out.startswith("1 0 1 "), outcome.out + outcome.err


def test_recorded_from_outside(program, sentinel, tmp_path):
    """Without marks of its own for the step to profile: sentinel_step() is enough."""
    outcome = sentinel("record", "-o", tmp_path / "c.sentinel", "--", program, "6", "64", "-1")
    assert len(losses(outcome)) == 6
    assert sentinel("report", tmp_path / "c.sentinel", "heatmap").status == 0


@pytest.mark.parametrize("fast", ["40%", "80M"])
def test_run_within_a_budget(program, sentinel, tmp_path, fast):
    plain = losses(training.finish([program, *LARGE], cwd=tmp_path))
    outcome = sentinel("run", "--fast", fast, "--summary", tmp_path / "summary.json", "--", program, *LARGE)
    assert losses(outcome) == plain
    summary = training.read_json(tmp_path / "summary.json")
    assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"]
    assert summary["steps"][5]["phase"] == "steady"
    assert sum(step["demoted_bytes"] for step in summary["steps"]) > 0


def test_samples_of_the_processor_or_why_not(program, sentinel, tmp_path):
    findings = json.loads(sentinel("doctor", "--json").out)["hardware"]
    event = next(finding for finding in findings if finding["name"] == "hardware samples")
    outcome = sentinel("record", "--count", "samples", "--", program, *SMALL, cwd=tmp_path)
    assert len(losses(outcome)) == 6
    shown = sentinel("report", tmp_path / "profile.sentinel", "summary").out
    if event["available"]:
        assert "sampled loads and stores" in shown
    else:
        assert "cannot be counted" in outcome.err and event["detail"] in outcome.err
        assert "no memory accesses counted" in shown
