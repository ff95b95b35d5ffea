"""What the tests of packages share: a wheel of this tree, and environments that it is installed into.

SENTINEL_WHEEL names a wheel that is there; else one is built, with adaptors for the PyTorch of framework-env.sh alone.
SENTINEL_WHEEL_PYTHONS names more interpreters, by colons, whose frameworks the wheel has adaptors for: each trains.
"""
import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
import training  # noqa: E402


@pytest.fixture(scope="session")
def torch2():
    """A Python with PyTorch 2.x, as pip installs it."""
    interpreter, reason = os.environ.get("SENTINEL_TORCH2_PYTHON"), None
    if not interpreter:
        interpreter, reason = training.python_with("torch2")
    if reason:
        pytest.skip(reason)
    return interpreter


def index_is_reached():
    """As framework-env.sh decides, whatever pip says of a failure."""
    ask = ["/usr/bin/python3", "-m", "pip", "--disable-pip-version-check", "index", "versions", "numpy"]
    return subprocess.run(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@pytest.fixture(scope="session")
def wheel(torch2, tmp_path_factory):
    if "SENTINEL_WHEEL" in os.environ:
        return pathlib.Path(os.environ["SENTINEL_WHEEL"]).resolve()
    folder = tmp_path_factory.mktemp("wheel")
    command = ["/usr/bin/python3", "-m", "pip", "wheel", "--no-deps", "-w", folder, REPOSITORY]
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SENTINEL_PREBUILT": torch2})
    if made.returncode != 0 and not index_is_reached():
        pytest.skip("pip cannot reach an index, which has what builds a wheel")
    assert made.returncode == 0, made.stdout[-4000:] + made.stderr[-4000:]
    built, = folder.glob("*.whl")
    return built


class Environment:
    """A virtual environment that sees another interpreter's packages, and has the wheel. No compiler is in its PATH."""

    def __init__(self, folder, interpreter, wheel):
        self.folder = folder
        ask = "import sys, sysconfig; print(sys._base_executable, sysconfig.get_path('purelib'), sep='\\n')"
        base, packages = subprocess.run([interpreter, "-c", ask], check=True, capture_output=True,
                                        text=True).stdout.splitlines()
        subprocess.run([base, "-m", "venv", folder], check=True)
        site, = folder.glob("lib/python3*/site-packages")
        (site / "others.pth").write_text(f"{packages}\n")
        self.installed = site / "sentinel" / "installed"
        self.pip("install", "--no-deps", "--no-index", wheel)

    def pip(self, *words):
        subprocess.run([self.folder / "bin" / "python3", "-m", "pip", "--disable-pip-version-check", "-q", *words],
                       check=True)

    def run(self, *command, **environment):
        return training.finish(["env", "-i", f"PATH={self.folder / 'bin'}", f"HOME={self.folder}", "OMP_NUM_THREADS=1",
                                *(f"{name}={value}" for name, value in environment.items()), *command],
                               cwd=self.folder)


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory):
    """environment(interpreter): one of its own each time."""
    return lambda interpreter: Environment(tmp_path_factory.mktemp("environment"), interpreter, wheel)
