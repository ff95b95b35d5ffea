"""What all tests here share: the built command, a Python that has PyTorch, and trainings.

SENTINEL_BUILD names the build (default: build/ in the repository); SENTINEL_TORCH2_PYTHON another Python
with PyTorch 2.x than the one that framework-env.sh makes.
"""
import itertools
import os
import pathlib
import shutil
import subprocess

import pytest

import training

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
CONTRACT = {"policy", "fast_limit_bytes", "peak_fast_bytes", "peak_unlimited_bytes", "streamed_ops", "steps"}
STEP_CONTRACT = {"step", "ms", "phase", "demand_faults", "promoted_bytes", "demoted_bytes", "stall_ms"}


# Two workers take a file each. These come first, so that both end at nearly the same time.
LONGEST = ["test_tensorflow.py", "test_bit_identity.py", "test_documents.py", "test_memory_cgroup.py", "test_compile.py"]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (LONGEST + [item.path.name]).index(item.path.name))


@pytest.fixture(scope="session")
def build():
    path = pathlib.Path(os.environ.get("SENTINEL_BUILD", REPOSITORY / "build")).resolve()
    if not (path / "bin" / "sentinel").exists():
        pytest.exit(f"{path}/bin/sentinel does not exist: build first, or set SENTINEL_BUILD", 1)
    return path


@pytest.fixture(scope="session")
def python():
    """A Python with PyTorch 2.x, as pip installs it."""
    interpreter, reason = os.environ.get("SENTINEL_TORCH2_PYTHON"), None
    if not interpreter:
        interpreter, reason = training.python_with("torch2")
    if reason:
        pytest.skip(reason)
    return interpreter


@pytest.fixture(scope="session")
def torch1():
    """A Python with PyTorch 1.13, as Debian 12 has it."""
    for candidate in ("/usr/bin/python3", shutil.which("python3"), shutil.which("python")):
        asked = [candidate, "-c", "import torch, sklearn; raise SystemExit(torch.__version__ >= '2')"]
        if candidate and subprocess.run(asked, capture_output=True).returncode == 0:
            return candidate
    pytest.skip("no Python here has PyTorch 1.13 and scikit-learn (python3-torch, python3-sklearn)")


@pytest.fixture(scope="session")
def slow_machine():
    """Described with a drive that is so slow that plans make tensors again."""
    return REPOSITORY / "tests/integration/scripts/slow_drive.toml"


@pytest.fixture(scope="session")
def device(build, python, tmp_path_factory):
    """The environment in which PyTorch trains in the memory of the tests' GPU driver."""
    from test_torch_gpu import device_of
    return device_of(python, build, tmp_path_factory.mktemp("adaptor"))


@pytest.fixture(scope="session")
def device1(build, torch1, tmp_path_factory):
    """With PyTorch 1.13."""
    from test_torch_gpu import device_of
    return device_of(torch1, build, tmp_path_factory.mktemp("adaptor1"))


@pytest.fixture(scope="session")
def sentinel(build):
    """sentinel("report", file): runs the built command."""
    def run(*words, **options):
        return training.finish([build / "bin" / "sentinel", *words], **options)
    return run


@pytest.fixture(scope="session")
def plain(python, tmp_path_factory):
    """plain(script, *flags): the training without Sentinel; the same one is run only once, unless
    again=True."""
    done = {}

    def run(script, *flags, again=False, interpreter=None):
        key = (script, flags, interpreter)
        if key in done and not again:
            return done[key]
        record = tmp_path_factory.mktemp("plain") / "record.json"
        outcome = training.finish([interpreter or python, training.WORKLOADS / script, *flags, "--json", record])
        if outcome.status == training.SKIPPED:
            pytest.skip(outcome.err.strip())
        assert outcome.status == 0, outcome.err
        outcome.record, outcome.record_file = training.read_json(record), record
        done[key] = outcome
        return outcome
    return run


@pytest.fixture
def under(sentinel, python, tmp_path):
    """under("20%", script, *flags): the training under `sentinel run`; None: with no budget."""
    numbers = itertools.count()

    def run(fast, script, *flags, options=(), interpreter=None, **rest):
        number = next(numbers)
        record, summary = tmp_path / f"record-{number}.json", tmp_path / f"summary-{number}.json"
        budget = ("--fast", fast) if fast is not None else ()
        outcome = sentinel("run", *budget, *options, "--summary", summary, "--", interpreter or python,
                           training.WORKLOADS / script, *flags, "--json", record, **rest)
        outcome.record, outcome.record_file = training.read_json(record), record
        outcome.summary = training.read_json(summary)
        return outcome
    return run


@pytest.fixture(scope="session")
def expect_same():
    """expect_same(plain run, run under Sentinel): it finished, the numbers are the same to the last
    bit, and what was held in fast memory never exceeded the budget."""
    def check(reference, outcome, *flags):
        assert outcome.status == 0, outcome.err
        difference = training.compare(reference, outcome, *flags)
        assert difference is None, difference + outcome.err
        summary = outcome.summary
        assert CONTRACT <= summary.keys()
        assert all(STEP_CONTRACT <= step.keys() for step in summary["steps"])
        assert set(outcome.phases()) <= {"warmup", "profile", "trial", "steady"}
        if summary["fast_limit_bytes"]:
            assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"]
    return check


@pytest.fixture(scope="session")
def expect_plain(plain, expect_same):
    """expect_plain(run under Sentinel, script, *flags): the same as of the plain run. A training that differs from
    itself can be compared with nothing."""
    def check(outcome, script, *flags, interpreter=None):
        reference = plain(script, *flags, interpreter=interpreter)
        if outcome.status == 0 and training.compare(reference, outcome):
            difference = training.compare(reference, plain(script, *flags, interpreter=interpreter, again=True))
            if difference:
                pytest.skip(f"not comparable: two plain runs differ ({difference.strip()})")
        expect_same(reference, outcome)
    return check


@pytest.fixture(scope="session")
def profile_of(sentinel, python, tmp_path_factory):
    """profile_of(script, *flags): the file that `sentinel record` makes of it, made once."""
    done = {}

    def record(script, *flags):
        if (script, flags) not in done:
            file = tmp_path_factory.mktemp("profile") / "step.sentinel"
            outcome = sentinel("record", "-o", file, "--", python, training.WORKLOADS / script, *flags)
            assert outcome.status == 0 and file.exists(), outcome.err
            done[script, flags] = file
        return done[script, flags]
    return record
