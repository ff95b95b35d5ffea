"""TensorFlow, from its wheel, with Keras scripts as they are: the numbers stay the same to the last bit,
the profile has TensorFlow's names, and what cannot work says so before anything is trained."""
import csv
import io
import json
import os
import pathlib
import subprocess
import textwrap

import pytest

import training
from test_memory_cgroup import in_group

TESTS = pathlib.Path(__file__).resolve().parent.parent
STEPS = ("--steps", "8")
TRAININGS = {
    "resnet": ("keras_resnet.py", "--depth", "20", "--batch", "160"),
    "lstm": ("keras_lstm.py", "--hidden", "512", "--batch", "20", "--vocab", "6000"),
    "transformer": ("keras_transformer.py", "--batch", "12", "--hidden", "256", "--heads", "4", "--layers", "3"),
    "dcgan": ("keras_dcgan.py", "--batch", "40"),
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.fixture(scope="module")
def tensorflow():
    made = subprocess.run(["bash", TESTS / "tensorflow-env.sh"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no environment with TensorFlow: {made.stderr.strip().splitlines()[-1]}")
    return made.stdout.strip()


@pytest.fixture(scope="module", params=TRAININGS)
def reference(request, tensorflow, plain):
    script, *flags = *TRAININGS[request.param], *STEPS
    first = plain(script, *flags, interpreter=tensorflow)
    difference = training.compare(first, plain(script, *flags, interpreter=tensorflow, again=True))
    if difference:
        pytest.skip(f"not comparable: two plain runs differ ({difference.strip()})")
    return first, script, flags


def test_recorded_bit_identity(reference, tensorflow, sentinel, tmp_path):
    first, script, flags = reference
    recorded = tmp_path / "record.json"
    outcome = sentinel("record", "-o", tmp_path / "profile", "--", tensorflow, training.WORKLOADS / script, *flags,
                       "--json", recorded)
    assert outcome.status == 0 and (tmp_path / "profile").exists(), outcome.err
    outcome.record_file = recorded
    assert training.compare(first, outcome) is None


def test_bit_identity(reference, tensorflow, under, expect_same):
    first, script, flags = reference
    outcome = under("20%", script, *flags, interpreter=tensorflow)
    expect_same(first, outcome)
    assert outcome.phases()[5:] == ["steady"] * 3
    assert outcome.phases().count("profile") == 1
    summary = outcome.summary
    assert summary["fast_limit_bytes"] == pytest.approx(0.2 * summary["peak_unlimited_bytes"], rel=1e-6)
    assert all(step["demoted_bytes"] and step["promoted_bytes"] for step in summary["steps"][6:])


def test_a_smaller_last_batch_has_a_plan_of_its_own(tensorflow, plain, under, expect_same):
    script, *flags = *TRAININGS["resnet"], "--steps", "12", "--images", "280", "--last-batch", "--threads", "2"
    outcome = under("30%", script, *flags, interpreter=tensorflow)
    expect_same(plain(script, *flags, interpreter=tensorflow), outcome)
    assert outcome.summary["plans"] >= 2


def test_ops_at_the_same_time(tensorflow, plain, under, expect_same):
    """With several inter-op threads their order differs from step to step."""
    script, *flags = *TRAININGS["resnet"], *STEPS, "--inter-op", "3", "--last-batch", "--images", "900"
    first = plain(script, *flags, interpreter=tensorflow)
    difference = training.compare(first, plain(script, *flags, interpreter=tensorflow, again=True))
    if difference:
        pytest.skip(f"not comparable: two plain runs differ ({difference.strip()})")
    outcome = under("20%", script, *flags, interpreter=tensorflow)
    expect_same(first, outcome)
    assert "steady" in outcome.phases()


def test_fallbacks(tensorflow, plain, under, expect_same):
    script, *flags = *TRAININGS["resnet"], *STEPS
    outcome = under("30%", script, *flags, interpreter=tensorflow, options=("--io", "threads", "--move", "copy"))
    expect_same(plain(script, *flags, interpreter=tensorflow), outcome)


def test_a_policy_that_makes_no_plan_is_refused(tensorflow, under):
    script, *flags = *TRAININGS["resnet"], *STEPS
    outcome = under("30%", script, *flags, interpreter=tensorflow, options=("--policy", "lru"))
    assert outcome.status == 125 and "makes no plan" in outcome.err


def test_numa_tiers(tensorflow, plain, under, expect_same):
    """Both tiers in one node: all is real but the copying."""
    script, *flags = *TRAININGS["resnet"], *STEPS
    outcome = under("30%", script, *flags, interpreter=tensorflow,
                    options=("--tiers", "fast=node0,slow=node0"), env={"SENTINEL_INJECT": "one-node"})
    expect_same(plain(script, *flags, interpreter=tensorflow), outcome)


@pytest.fixture(scope="module")
def profile(tensorflow, sentinel, tmp_path_factory):
    file = tmp_path_factory.mktemp("profile") / "resnet.sentinel"
    script, *flags = TRAININGS["resnet"]
    outcome = sentinel("record", "-o", file, "--", tensorflow, training.WORKLOADS / script, *flags, *STEPS)
    assert outcome.status == 0 and file.exists(), outcome.err
    return file


def test_names(profile, sentinel):
    def rows(view):
        return json.loads(sentinel("report", profile, view, "--rows", "0", "--format", "json").out)["rows"]

    begins = {(row["name"], row["phase"]): row["layer"] for row in rows("layers")}
    order = [begins["stem", "forward"], begins["s1b0_conv1", "forward"], begins["head", "forward"],
             begins["head", "backward"], begins["s1b0_conv1", "backward"], begins["stem", "backward"]]
    assert order == sorted(order) and ("sgd", "optimizer") in begins and begins["(no layer)", "forward"] == 0
    makers = {row["name"] for row in rows("tensors")}
    assert any("Conv2D" in name for name in makers) and any("BackpropFilter" in name for name in makers)
    summary = json.loads(sentinel("report", profile, "summary", "--format", "json").out)
    assert summary["framework"].startswith("tensorflow 2.") and summary["counts"]["source"] == "userfaultfd"
    heatmap = sentinel("report", profile, "heatmap")
    assert heatmap.status == 0 and "s0b" in heatmap.out and "_conv" in heatmap.out


def test_budget_is_held_in_a_memory_cgroup(tensorflow, profile, build, sentinel, tmp_path):
    """The kernel enforces it: what is not tensors, a fifth of the tensors, and 96 MiB."""
    script, *flags = *TRAININGS["resnet"], *STEPS
    train = [tensorflow, training.WORKLOADS / script, *flags]
    outcome, peak = in_group(train)
    assert outcome.status == 0, outcome.err
    tensors = json.loads(sentinel("report", profile, "summary", "--format", "json").out)["peak_live_bytes"]
    limit = peak - tensors + tensors // 5 + (96 << 20)
    assert limit < peak
    killed, _ = in_group(train, limit)
    assert killed.status == 128 + 9, "the control fits: the limit proves nothing"
    held, _ = in_group([build / "bin" / "sentinel", "run", "--fast", "20%", "--profile", profile, "--", *train], limit)
    assert held.status == 0, held.err


STEP_BY_STEP = """
    import keras, numpy as np, tensorflow as tf
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1500,)), *(keras.layers.Dense(1500, name=f"dense{n}") for n in range(3))])
    optimizer = keras.optimizers.Adam()
    data = tf.constant(np.random.default_rng(1).normal(size=(64, 1500)), tf.float32)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(data, training=True) ** 2)
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss
    {decorated}
    losses = [float(step()).hex() for _ in range(8)]
    print(losses)
"""


@pytest.mark.parametrize("decorated", ["", "step = tf.function(step)", "step = tf.function(step, jit_compile=True)"],
                         ids=["eager", "function", "xla"])
def test_loops_of_ones_own(decorated, tensorflow, sentinel, tmp_path):
    script = tmp_path / "loop.py"
    script.write_text(textwrap.dedent(STEP_BY_STEP).replace("{decorated}", decorated))
    alone = training.finish([tensorflow, script], env=QUIET)
    assert alone.status == 0, alone.err
    summary = tmp_path / "summary.json"
    outcome = sentinel("run", "--fast", "50%", "--summary", summary, "--", tensorflow, script, env=QUIET)
    assert outcome.status == 0, outcome.err
    assert outcome.out == alone.out
    assert [step["phase"] for step in json.loads(summary.read_text())["steps"]][5:] == ["steady"] * 3


def test_absent(python, sentinel):
    outcome = sentinel("run", "--fast", "64M", "--", python, "-c", "import tensorflow")
    assert outcome.status == 1 and "No module named 'tensorflow'" in outcome.err
    assert "sentinel:" not in outcome.err


@pytest.mark.parametrize("version, says", [(None, "no headers"), ("2.10.1", "TensorFlow 2.10.1 is not supported")])
def test_another_version(version, says, python, sentinel, tmp_path):
    package = tmp_path / "tensorflow"
    (package / "include").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    for library in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        (package / library).touch()
    if version:
        installed = tmp_path / f"tensorflow_cpu-{version}.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: {version}\n")
    outcome = sentinel("run", "--fast", "64M", "--", python, "-c", "import tensorflow", cwd=tmp_path)
    assert outcome.status == 125 and says in outcome.err
    assert "install tensorflow-cpu" in outcome.err


def test_initialised_before(tensorflow, sentinel):
    loads = ("import ctypes, importlib.util, os\n"
             "folder = importlib.util.find_spec('tensorflow').submodule_search_locations[0]\n"
             "ctypes.CDLL(os.path.join(folder, 'libtensorflow_framework.so.2'))\n"
             "import tensorflow")
    outcome = sentinel("run", "--fast", "64M", "--", tensorflow, "-c", loads)
    assert outcome.status == 125 and "cannot be replaced any more" in outcome.err


def test_an_adaptor_that_cannot_be_built(tensorflow, sentinel, tmp_path):
    outcome = sentinel("run", "--fast", "64M", "--", tensorflow, "-c", "import tensorflow",
                       env={"CXX": "/bin/false", "XDG_CACHE_HOME": str(tmp_path)})
    assert outcome.status == 125 and "does not compile" in outcome.err


MARKED = STEP_BY_STEP.replace("def step():", "import sentinel\n    def step():").replace(
    "loss = tf.reduce_mean(model(data, training=True) ** 2)",
    "x = data\n            for layer in model.layers: x = sentinel.tensorflow.add_layer(layer(x))\n"
    "            loss = tf.reduce_mean(x ** 2)").replace("import sentinel\n", "import sentinel, sentinel.tensorflow\n")


def test_marks_in_a_graph(tensorflow, sentinel, tmp_path):
    script, profile = tmp_path / "marked.py", tmp_path / "marked.sentinel"
    script.write_text(textwrap.dedent(MARKED).replace("{decorated}", "step = tf.function(step)"))
    outcome = sentinel("record", "-o", profile, "--", tensorflow, script, env=QUIET)
    assert outcome.status == 0, outcome.err
    table = sentinel("report", profile, "layers", "--format", "csv").out
    assert {row["name"] for row in csv.DictReader(io.StringIO(table))} >= {f"layer {n}" for n in (1, 2, 3, 4)}


BRACKETED = """
    import keras, sentinel.tensorflow, tensorflow as tf
    model = keras.Sequential([keras.Input((1500,)), *(keras.layers.Dense(1500, name=f"dense{n}") for n in range(3))])
    @tf.function
    def forward(x):
        x = sentinel.tensorflow.start_profile(x)
        return sentinel.tensorflow.end_profile(tf.reduce_sum(model(x)))
    print(float(forward(tf.ones((64, 1500)))) != 0)
"""


def test_a_graph_says_what_to_profile(tensorflow, sentinel, tmp_path):
    script, profile = tmp_path / "bracketed.py", tmp_path / "bracketed.sentinel"
    script.write_text(textwrap.dedent(BRACKETED))
    outcome = sentinel("record", "-o", profile, "--", tensorflow, script, env=QUIET)
    assert (outcome.status, outcome.out) == (0, "True\n"), outcome.err
    rows = json.loads(sentinel("report", profile, "layers", "--format", "json").out)["rows"]
    assert [row["name"] for row in sorted(rows, key=lambda row: row["layer"])][-3:] == ["dense0", "dense1", "dense2"]
