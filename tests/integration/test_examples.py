"""The programs of examples/, as somebody runs them who copies one."""
import pathlib
import subprocess

import pytest

import training

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = REPOSITORY / "examples"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def losses(outcome):
    assert outcome.status == 0, outcome.err
    found = [line for line in outcome.out.splitlines() if line.startswith("step ")]
    assert len(found) == 8, outcome.out
    return found


def expect_moves(summary):
    assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"] < summary["peak_unlimited_bytes"]
    assert sum(step["demoted_bytes"] for step in summary["steps"]) > 0


def test_pytorch(sentinel, python, tmp_path):
    plain = losses(training.finish([python, EXAMPLES / "pytorch_loop.py"]))
    summary = tmp_path / "run.json"
    assert losses(sentinel("run", "--fast", "40%", "--summary", summary, "--", python, EXAMPLES / "pytorch_loop.py")) == plain
    expect_moves(training.read_json(summary))


def test_gpt2(sentinel, python, tmp_path):
    """transformers' Trainer with its fused AdamW and clipped gradients, unmodified."""
    records = tmp_path / "plain.json", tmp_path / "sentinel.json"
    words = [python, EXAMPLES / "finetune_gpt2.py", "--size", "tiny", "--steps", 8, "--json"]
    summary = tmp_path / "run.json"
    plain = training.finish([*words, records[0]])
    assert plain.status == 0, plain.err
    outcome = sentinel("run", "--fast", "40%", "--summary", summary, "--", *words, records[1])
    assert outcome.status == 0, outcome.err
    plain, run = map(training.read_json, records)
    assert (run["losses"], run["weights_sha256"]) == (plain["losses"], plain["weights_sha256"])
    expect_moves(training.read_json(summary))


def test_keras(sentinel, tmp_path):
    tensorflow, reason = training.python_with("tensorflow")
    if not tensorflow:
        pytest.skip(reason)
    plain = losses(training.finish([tensorflow, EXAMPLES / "keras_script.py"], env=QUIET))
    summary = tmp_path / "run.json"
    assert losses(sentinel("run", "--fast", "60%", "--summary", summary, "--", tensorflow, EXAMPLES / "keras_script.py",
                           env=QUIET)) == plain
    expect_moves(training.read_json(summary))


@pytest.fixture(scope="module")
def program(build, tmp_path_factory):
    path = tmp_path_factory.mktemp("example") / "train"
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLES / "c" / "train.c", "-I",
                    REPOSITORY / "include", "-L", build / "lib", "-lsentinel", f"-Wl,-rpath,{build / 'lib'}", "-o", path],
                   check=True)
    return path


def test_c(program, sentinel, tmp_path):
    plain = losses(training.finish([program], cwd=tmp_path))
    assert sentinel("report", tmp_path / "profile.sentinel", "heatmap").status == 0
    summary = tmp_path / "run.json"
    assert losses(sentinel("run", "--fast", "60%", "--summary", summary, "--", program, cwd=tmp_path)) == plain
    expect_moves(training.read_json(summary))


def test_c_with_cmake(build, tmp_path):
    """Against an installation, as its CMakeLists.txt finds it."""
    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path / "installed"], check=True, capture_output=True)
    for command in (["cmake", "-S", EXAMPLES / "c", "-B", tmp_path / "made"], ["cmake", "--build", tmp_path / "made"]):
        made = training.finish(command, env={"PKG_CONFIG_PATH": str(tmp_path / "installed" / "lib" / "pkgconfig")})
        assert made.status == 0, made.out + made.err
    losses(training.finish([tmp_path / "made" / "train"], cwd=tmp_path))
