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


# ---------------------------------------------------------------- by what the machine lets everybody do

SCRIPT = """
import torch
torch.manual_seed(1)
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
data = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
for step in range(8):
    optimizer.zero_grad()
    loss = net(data).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
"""
UNPRIVILEGED = pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd")
OWN_DEVICE = """
set -e
numbers=$(stat -c '0x%t 0x%T' /dev/userfaultfd)
mount -t tmpfs none /mnt && mknod /mnt/device c $numbers && chmod 666 /mnt/device
mount --bind /mnt/device /dev/userfaultfd && exec "$@"
"""


@pytest.fixture(scope="module")
def installed(build):
    """The command where everybody may read it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        subprocess.run(["cmake", "--install", build, "--prefix", name], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["chmod", "-R", "a+rX", name], check=True)
        yield pathlib.Path(name) / "bin" / "sentinel"


@pytest.fixture(params=["nothing", "device", "sysctl"])
def nobody(request, place, installed, torch1):
    """nobody("record", ...): the command as an ordinary user. The machine lets everybody open the device (as seen by
    this test alone), or handle faults by the system call, or neither."""
    before = UNPRIVILEGED.read_text().strip()
    if before == "1" or subprocess.run([*NOBODY, "test", "-w", "/dev/userfaultfd"]).returncode == 0:
        pytest.skip("this machine lets everybody handle faults")
    (place / "train.py").write_text(SCRIPT)
    around = []
    if request.param == "device":
        around = ["unshare", "--mount", "--propagation", "private", "bash", "-c", OWN_DEVICE, "with-device"]
        if subprocess.run([*around, "true"], capture_output=True).returncode != 0:
            pytest.skip("no mount namespace can be made here")

    def run(*words, python=torch1):
        words = [python if word == "PYTHON" else word for word in words]
        return training.finish([*around, *NOBODY, installed, *words], cwd=place,
                               env={"HOME": str(place), "XDG_CACHE_HOME": str(place / "cache"), "OMP_NUM_THREADS": "1"})
    run.may_handle_faults = request.param != "nothing"
    if request.param != "sysctl":
        yield run
        return
    try:
        UNPRIVILEGED.write_text("1")
    except OSError:
        pytest.skip(f"{UNPRIVILEGED} cannot be written here")
    yield run
    UNPRIVILEGED.write_text(before)


def test_what_works_for_an_ordinary_user(nobody, installed, place, torch1):
    """The guide's table: docs/guide/install.md."""
    plain = training.finish([*NOBODY, torch1, "train.py"], cwd=place, env={"HOME": str(place), "OMP_NUM_THREADS": "1"})
    train = ("--", "PYTHON", "train.py")
    recorded = nobody("record", "-o", "counted.sentinel", *train)
    ran = nobody("run", "--fast", "40%", *train)
    verified = nobody("verify", "--fast", "40%", *train)
    if nobody.may_handle_faults:
        assert recorded.status == ran.status == verified.status == 0, recorded.err + ran.err + verified.err
        assert ran.out == plain.out
    else:
        for outcome in (recorded, ran, verified):
            assert outcome.status == 125 and "vm.unprivileged_userfaultfd=1" in outcome.err, outcome.err
    roots = training.finish([installed, "record", "-o", place / "roots.sentinel", "--", torch1, place / "train.py"])
    assert roots.status == 0, roots.err
    os.chown(place / "roots.sentinel", 65534, 65534)
    for words in (["doctor"], ["report", "roots.sentinel"], ["plan", "roots.sentinel", "--fast", "64M", "-o", "plan.json"],
                  ["simulate", "roots.sentinel", "--machine", "a100-g10", "--fast", "64M"], ["explain", "plan.json"],
                  ["jobs"]):
        outcome = nobody(*words)
        assert outcome.status == (1 if words == ["jobs"] else 0), outcome.out + outcome.err
