"""An installation, in another place than it was built for: the command trains, pkg-config builds."""
import os
import pathlib
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


def test_pkg_config_builds_a_program(prefix, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "sentinel"], env=environment, check=True,
                           capture_output=True, text=True).stdout.split()
    program = tmp_path / "train"
    subprocess.run(["cc", "-O2", TRAIN, "-o", program, *flags, "-lm"], check=True)
    outcome = training.finish([program, "6", "64", "2"], cwd=tmp_path,
                              env={"LD_LIBRARY_PATH": str(prefix / "lib")})
    assert outcome.status == 0 and (tmp_path / "profile.sentinel").exists(), outcome.err
