"""Trainings as launchers start them: ranks have files of their own, and the numbers are the plain ones."""
import pathlib
import shutil
import subprocess

import pytest

import training

CASES = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "cases"
SCRIPT = CASES / "two_ranks.py"


def torchrun(ranks):
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), SCRIPT]


def plain_of(python, *words, cwd=None):
    outcome = training.finish([python, *words], cwd=cwd)
    assert outcome.status == 0, outcome.err
    return outcome.out


def steps_of(summary):
    return len(training.read_json(summary)["steps"])


def test_a_module(sentinel, python, tmp_path):
    outcome = sentinel("run", "--fast", "40M", "--summary", tmp_path / "s.json", "--", python, "-m", "two_ranks",
                       cwd=CASES)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_of(python, "-m", "two_ranks", cwd=CASES)
    assert steps_of(tmp_path / "s.json") == 8


@pytest.mark.parametrize("ranks", [1, 2])
def test_torchrun(ranks, sentinel, python, tmp_path):
    outcome = sentinel("run", "--fast", f"{40 * ranks}M", "--summary", tmp_path / "s.json", "-o",
                       tmp_path / "p.sentinel", "--", python, *torchrun(ranks), timeout=300)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_of(python, *torchrun(ranks))
    ends = [""] if ranks == 1 else [".rank0", ".rank1"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [f"s{end}.json" for end in ends] + [f"p{end}.sentinel" for end in ends])
    assert all(steps_of(tmp_path / f"s{end}.json") == 8 for end in ends)
    told = [line for line in outcome.err.splitlines() if "ranks would all write" in line]
    assert len(told) == (0 if ranks == 1 else 1), outcome.err
    if ranks == 2:
        limits = [training.read_json(tmp_path / f"s{end}.json")["fast_limit_bytes"] for end in ends]
        assert limits == [40 << 20] * 2  # BYTES are the node's: 80M


def test_a_name_with_the_rank(sentinel, python, tmp_path):
    outcome = sentinel("run", "--fast", "80M", "--summary", tmp_path / "s-%r.json", "--", python, *torchrun(2),
                       timeout=300)
    assert outcome.status == 0 and "would all write" not in outcome.err, outcome.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s-0.json", "s-1.json"]


def test_record_of_two_ranks(sentinel, python, tmp_path):
    """`record` finds what each of them has written."""
    outcome = sentinel("record", "-o", tmp_path / "p.sentinel", "--", python, *torchrun(2), timeout=300)
    assert outcome.status == 0, outcome.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.rank0.sentinel", "p.rank1.sentinel"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_multiprocessing_starts(method, sentinel, python, tmp_path):
    """Each has a limit and a summary of its own, and the workers that load data are left alone."""
    words = CASES / "started_processes.py", method
    outcome = sentinel("run", "--fast", "40M", "--summary", tmp_path / "s.json", "--", python, *words)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_of(python, *words) and "is without Sentinel" in outcome.out
    for number in range(2):
        summary = training.read_json(tmp_path / f"s.spawned{number}.json")
        assert len(summary["steps"]) == 8 and summary["fast_limit_bytes"] == 40 << 20


def test_a_forked_process_trains_unmanaged_and_says_so(sentinel, python):
    words = CASES / "started_processes.py", "fork"
    outcome = sentinel("run", "--fast", "40M", "--", python, *words)
    assert outcome.status == 0 and outcome.out == plain_of(python, *words), outcome.err
    assert outcome.err.count("a process that was forked trains") == 2 and "no training step" not in outcome.err
    assert sentinel("run", "--strict", "--fast", "40M", "--", python, *words).status == 125


@pytest.fixture(scope="session")
def beside_torch(python, tmp_path_factory):
    """beside_torch("accelerate", ...): a folder with packages that the tests' environment does not have."""
    def install(*packages):
        folder = tmp_path_factory.mktemp("packages")
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *packages],
                              capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"{packages[0]} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        return folder
    return install


# With what they import; PyTorch is there.
ACCELERATE = ("accelerate", "huggingface_hub", "safetensors", "pyyaml", "psutil", "packaging", "tqdm", "requests",
              "httpx", "httpcore", "h11", "anyio", "idna", "certifi", "sniffio")
IPYTHON = ("ipykernel", "ipython", "jupyter_client", "jupyter_core", "traitlets", "tornado", "pyzmq", "comm",
           "matplotlib-inline", "nest_asyncio", "psutil", "packaging", "python-dateutil", "six", "platformdirs",
           "debugpy", "decorator", "jedi", "parso", "pexpect", "ptyprocess", "prompt_toolkit", "wcwidth", "pygments",
           "stack_data", "executing", "asttokens", "pure_eval", "ipython_pygments_lexers")


def test_accelerate(sentinel, python, beside_torch, tmp_path):
    command = [python, "-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1", "--mixed_precision", "no",
               "--dynamo_backend", "no", "--num_processes", "1", "--num_cpu_threads_per_process", "1", SCRIPT]
    env = {"PYTHONPATH": str(beside_torch(*ACCELERATE)), "HF_HOME": str(tmp_path / "hf")}
    plain = training.finish(command, env=env)
    assert plain.status == 0, plain.err
    outcome = sentinel("run", "--fast", "40M", "--summary", tmp_path / "s.json", "--", *command, env=env,
                       timeout=300)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain.out
    assert steps_of(tmp_path / "s.json") == 8


def test_uv(sentinel, python, tmp_path, beside_torch):
    uv = shutil.which("uv") or beside_torch("uv") / "bin" / "uv"
    outcome = sentinel("run", "--fast", "40M", "--summary", tmp_path / "s.json", "--", uv, "run", "--no-project",
                       "--python", python, "python", SCRIPT, env={"UV_CACHE_DIR": str(tmp_path / "cache")})
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_of(python, SCRIPT)
    assert steps_of(tmp_path / "s.json") == 8


KERNEL = """
import pathlib, sys
from jupyter_client import KernelManager
manager = KernelManager()
manager.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
manager.start_kernel()
client = manager.blocking_client()
client.start_channels()
client.wait_for_ready(timeout=60)
reply = client.execute_interactive(pathlib.Path(sys.argv[1]).read_text(), timeout=120)
client.stop_channels()
manager.shutdown_kernel()
sys.exit(reply["content"]["status"] != "ok")
"""


def test_an_ipython_kernel(sentinel, python, beside_torch, tmp_path):
    """The kernel runs below the program that asks it, in a session of its own."""
    env = {"PYTHONPATH": str(beside_torch(*IPYTHON)), "IPYTHONDIR": str(tmp_path / "i"),
           "JUPYTER_RUNTIME_DIR": str(tmp_path / "j")}
    outcome = sentinel("run", "--fast", "40M", "--summary", tmp_path / "s.json", "--", python, "-c", KERNEL, SCRIPT,
                       env=env)
    assert outcome.status == 0, outcome.err
    assert outcome.out == plain_of(python, SCRIPT)
    assert steps_of(tmp_path / "s.json") == 8
