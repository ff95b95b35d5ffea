"""torch.compile on the processor: a compiled training under a budget gives what it gives without Sentinel, and fused
kernels are ops of its profile. PyTorch 2.x alone has it."""
import pathlib

import pytest

import training

SCRIPT = pathlib.Path(__file__).resolve().parent / "scripts" / "compiled.py"
UNMANAGED = "goes on unmanaged"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Inductor's caches: of one folder, so that code without marks is there when Sentinel needs code with them."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor")), "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def alone(python, cache):
    """alone(*words): what the training prints without Sentinel."""
    done = {}

    def run(*words):
        if words not in done:
            outcome = training.finish([python, SCRIPT, *words], env=cache, timeout=600)
            assert outcome.status == 0, outcome.err
            done[words] = outcome.out
        return done[words]
    return run


@pytest.fixture
def managed(python, cache, sentinel, tmp_path):
    """managed("40%", *words): the same under `sentinel run`, with its summary and the names of its profile's ops."""
    def run(fast, *words, env=()):
        summary, profile = tmp_path / "summary.json", tmp_path / "step.sentinel"
        outcome = sentinel("run", "--fast", fast, "--summary", summary, "-o", profile, "--", python, SCRIPT, *words,
                           env={**cache, **dict(env)}, timeout=600)
        assert outcome.status == 0, outcome.err
        outcome.summary = training.read_json(summary)
        assert profile.exists(), outcome.err
        trace = tmp_path / "step.jsonl"
        exported = sentinel("export", profile, "-o", trace)
        assert exported.status == 0, exported.err
        outcome.ops = [line["name"] for line in training.read_lines(trace) if "k" in line]
        return outcome
    return run


def expect_moved(outcome, steps=2):
    """The last steps held the budget, and something left memory in each of them and came back."""
    summary = outcome.summary
    assert 0 < summary["peak_fast_bytes"] <= summary["fast_limit_bytes"] < summary["peak_unlimited_bytes"]
    assert outcome.phases()[-steps:] == ["steady"] * steps
    assert all(step["demoted_bytes"] and step["promoted_bytes"] for step in summary["steps"][-steps:])
    assert UNMANAGED not in outcome.err


@pytest.mark.parametrize("words", [("cnn",), ("mlp", "--update", "by hand"), ("transformer",)],
                         ids=["cnn", "mlp", "transformer"])
def test_same_numbers(words, alone, managed):
    expected = alone(*words)
    outcome = managed("40%", *words)
    assert outcome.out == expected
    expect_moved(outcome)
    assert sum("cpp_fused" in name for name in outcome.ops) >= 4, outcome.ops


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_without_kernels(backend, alone, managed):
    words = ("mlp", "--backend", backend)
    outcome = managed("40%", *words)
    assert outcome.out == alone(*words)
    expect_moved(outcome)
    assert not any("cpp_fused" in name for name in outcome.ops)


def test_a_compiled_optimizer(alone, managed):
    """Its step calls no hook: a step ends where the next forward pass begins."""
    words = ("mlp", "--backend", "aot_eager", "--update", "compiled")
    outcome = managed("40%", *words)
    assert outcome.out == alone(*words)
    expect_moved(outcome)
    assert 7 <= len(outcome.summary["steps"]) <= 9  # where Dynamo traces, one may seem to end


def test_a_wrapper_in_cpp(alone, managed):
    words = ("mlp", "--option", "cpp_wrapper")
    outcome = managed("40%", *words)
    assert outcome.out == alone(*words)
    expect_moved(outcome)
    assert any("cpp_fused" in name for name in outcome.ops)
    assert any("aoti_torch_cpu" in name for name in outcome.ops)


def test_another_batch_is_of_the_same_family(alone, managed):
    """Dynamo compiles anew, and the ops are the same."""
    words = ("mlp", "--backend", "aot_eager", "--batches", "64", "96", "--steps", "16")
    outcome = managed("40%", *words)
    assert outcome.out == alone(*words)
    expect_moved(outcome)
    assert outcome.summary["plans"] == 1


def test_kernels_name_their_operands(python, cache, sentinel, tmp_path):
    """Without page counts nothing else has them."""
    profile, trace = tmp_path / "step.sentinel", tmp_path / "step.jsonl"
    outcome = sentinel("record", "--count", "ops", "-o", profile, "--", python, SCRIPT, "mlp", "--update", "by hand",
                       env=cache, timeout=600)
    assert outcome.status == 0, outcome.err
    assert sentinel("export", profile, "-o", trace).status == 0
    kernels = [line for line in training.read_lines(trace) if "k" in line and "cpp_fused" in line["name"]]
    assert len(kernels) >= 8 and all(kernel["in"] and kernel["out"] for kernel in kernels), kernels
    updates = [kernel for kernel in kernels if "_sqrt_" in kernel["name"]]
    assert updates and all(len(kernel["in"]) >= 4 and len(kernel["out"]) >= 3 for kernel in updates), updates


def test_pools_are_switched_off(alone, managed):
    words = ("mlp", "--update", "by hand", "--option", "memory_planning")
    outcome = managed("40%", *words)
    assert outcome.out == alone(*words[:3])
    expect_moved(outcome)
    assert outcome.err.count("Inductor's memory planning is switched off") == 1


def test_workers_are_left_alone(managed, alone, tmp_path):
    """They are Python programs that import PyTorch: none is attached, and none says anything."""
    words = ("mlp", "--update", "by hand")
    log = tmp_path / "workers.log"
    env = {"TORCHINDUCTOR_COMPILE_THREADS": "2", "TORCH_WARM_POOL": "1", "TORCHINDUCTOR_WORKER_LOGPATH": str(log),
           "TORCHINDUCTOR_WORKER_SUPPRESS_LOGGING": "0", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    outcome = managed("40%", *words, env=env)
    assert outcome.out == alone(*words)
    expect_moved(outcome)
    assert "sentinel" not in (log.read_text() if log.exists() else "")


@pytest.mark.parametrize("script, attached", [("torch/_inductor/compile_worker/__main__.py", False),
                                              ("train/__main__.py", True)])
def test_which_programs_are_workers(script, attached, sentinel, python, tmp_path):
    path = tmp_path / script
    path.parent.mkdir(parents=True)
    path.write_text("import sys\nprint(any(type(one).__module__ == 'sentinel._attach' for one in sys.meta_path))\n")
    outcome = sentinel("run", "--", python, path)
    assert outcome.status == 0 and outcome.out == f"{attached}\n", outcome.err


def test_an_unknown_backend_goes_on_unmanaged(python, cache, sentinel, alone):
    words = ("mlp", "--backend", "unknown", "--steps", "4")
    outcome = sentinel("run", "--fast", "64M", "--", python, SCRIPT, *words, env=cache)
    assert outcome.status == 0, outcome.err
    assert outcome.out == alone(*words)
    assert "torch.compile with the backend unknown is not supported yet" in outcome.err and UNMANAGED in outcome.err
    strict = sentinel("run", "--fast", "64M", "--strict", "--", python, SCRIPT, *words, env=cache)
    assert strict.status == 125, strict.err
