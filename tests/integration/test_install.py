"""An installation, in another place than it was built for: the command trains, pkg-config and CMake build programs."""
import os
import pathlib
import shutil
import subprocess

import pytest

import training

TRAIN = pathlib.Path(__file__).resolve().parent / "c_program" / "train.c"


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    path = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", build, "--prefix", path], check=True, capture_output=True)
    return path


def test_the_command_records(prefix, torch1, tmp_path):
    """An adaptor for the PyTorch that the build has found is installed with it."""
    script = ("import torch\nweight = torch.ones(9000, requires_grad=True)\n"
              "optimizer = torch.optim.SGD([weight], 0.1)\n"
              "for _ in range(5): (weight * weight).sum().backward(); optimizer.step()\n")
    profile = tmp_path / "profile"
    outcome = training.finish([prefix / "bin" / "sentinel", "record", "-o", profile, "--", torch1, "-c", script])
    assert outcome.status == 0, outcome.err
    assert "building the adaptor" not in outcome.err
    assert training.finish([prefix / "bin" / "sentinel", "report", profile]).status == 0


def runs(program, folder, library):
    outcome = training.finish([program, "6", "64", "2"], cwd=folder, env={"LD_LIBRARY_PATH": str(library)})
    assert outcome.status == 0 and (folder / "profile.sentinel").exists(), outcome.err


def test_pkg_config_builds_a_program(prefix, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "sentinel"], env=environment, check=True,
                           capture_output=True, text=True).stdout.split()
    program = tmp_path / "train"
    subprocess.run(["cc", "-O2", TRAIN, "-o", program, *flags, "-lm"], check=True)
    runs(program, tmp_path, prefix / "lib")


CONSUMER = """
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(Sentinel {version} REQUIRED)
add_executable(train {source})
target_link_libraries(train Sentinel::sentinel m)
"""


def configured(prefix, folder, version):
    (folder / "CMakeLists.txt").write_text(CONSUMER.format(version=version, source=TRAIN))
    return subprocess.run(["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)


def test_cmake_builds_a_program(prefix, tmp_path):
    """Wherever the installation has been moved to."""
    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    told = configured(moved, tmp_path, "0.1")
    assert told.returncode == 0, told.stderr
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    runs(tmp_path / "build" / "train", tmp_path, moved / "lib")
    linked = subprocess.run(["ldd", tmp_path / "build" / "train"], check=True, capture_output=True, text=True).stdout
    assert f"libsentinel.so => {moved}" in linked


def test_cmake_refuses_a_later_version(prefix, tmp_path):
    told = configured(prefix, tmp_path, "99.0")
    assert told.returncode != 0 and 'compatible with requested version "99.0"' in told.stderr


@pytest.mark.parametrize("file, words", [
    ("man/man1/sentinel.1", ".TH"), ("bash-completion/completions/sentinel", "complete"),
    ("zsh/site-functions/_sentinel", "#compdef sentinel"), ("fish/vendor_completions.d/sentinel.fish", "complete -c")])
def test_manual_and_completion_are_installed(file, words, prefix):
    assert words in (prefix / "share" / file).read_text()
