"""What an ordinary user is told: which packages to install, and what counting pages takes."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import training

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")


@pytest.fixture
def place():
    """A directory of nobody's; pytest's own are root's alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 65534, 65534)
        yield pathlib.Path(name)


@pytest.mark.parametrize("script", ["tools/quickstart.sh", "tests/run.sh"])
def test_missing_packages_are_named(script, place):
    for folder in ("tools", "tests"):
        (place / folder).mkdir()
    for file in ("tools/setup.sh", "tools/blas.sh", "tools/quickstart.sh", "tools/packages.txt", "tools/packages-tests.txt",
                 "tools/packages-torch.txt", "tests/run.sh"):
        shutil.copy(REPOSITORY / file, place / file)
    with open(place / "tools" / "packages.txt", "a") as packages:
        packages.write("no-such-package\n")
    outcome = training.finish([*NOBODY, "bash", place / script], cwd=place)
    assert outcome.status == 1
    assert "install them as root" in outcome.err and outcome.err.rstrip().endswith("no-such-package")


@pytest.mark.parametrize("chosen, told", [("blas", True), ("openblas-pthread", True), ("openblas-openmp", False)])
def test_the_systems_blas_stays(chosen, told, tmp_path):
    """The scripts' own runs use OpenBLAS with OpenMP, by a variable; the system's links are what they were."""
    for name in ("blas", "openblas-pthread", "openblas-openmp"):
        (tmp_path / name).mkdir()
        for link in ("libblas.so.3", "liblapack.so.3"):
            (tmp_path / name / link).write_text(name)
    for link in ("libblas.so.3", "liblapack.so.3"):
        (tmp_path / link).symlink_to(tmp_path / chosen / link)
    script = 'source "$0"; own_blas "$1"; cat "${LD_LIBRARY_PATH%%:*}/libblas.so.3" 2>/dev/null'
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    result = subprocess.run(["bash", "-euc", script + " || true", REPOSITORY / "tools/blas.sh", tmp_path], text=True,
                            capture_output=True, env=environment | {"LD_LIBRARY_PATH": "/before"})
    assert result.returncode == 0 and result.stderr == ""
    assert ("the system's choice stays as it is" in result.stdout) == told
    assert result.stdout.endswith("openblas-openmp") == told
    for link in ("libblas.so.3", "liblapack.so.3"):
        assert (tmp_path / link).readlink() == tmp_path / chosen / link
    for path in (REPOSITORY / "tools").glob("*.sh"):
        assert "update-alternatives" not in path.read_text(), path


def test_counting_without_the_right_to(build, torch1, place):
    settings = ("/proc/sys/vm/unprivileged_userfaultfd", "/dev/userfaultfd")
    if pathlib.Path(settings[0]).read_text().strip() == "1":
        pytest.skip(f"{settings[0]} lets everybody handle faults")
    if subprocess.run([*NOBODY, "test", "-w", settings[1]]).returncode == 0:
        pytest.skip(f"{settings[1]} is everybody's")
    if subprocess.run([*NOBODY, build / "bin" / "sentinel", "--version"], capture_output=True).returncode != 0:
        pytest.skip("the build is not readable by others")
    outcome = training.finish([*NOBODY, build / "bin" / "sentinel", "record", "-o", place / "profile", "--",
                               torch1, "-c", "import torch; print('trained')"], env={"HOME": str(place)}, cwd=place)
    assert outcome.status == 125 and "trained" not in outcome.out
    assert "vm.unprivileged_userfaultfd=1" in outcome.err and "no training step" not in outcome.err
