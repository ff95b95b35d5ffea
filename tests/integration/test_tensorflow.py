"""TensorFlow, from its wheel, with Keras scripts as they are: the numbers stay the same to the last bit,
the profile has TensorFlow's names, and what cannot work says so before anything is trained."""
import csv
import io
import json
import pathlib
import textwrap

import pytest

import training
from test_memory_cgroup import GIVE_BACK, in_group

TESTS = pathlib.Path(__file__).resolve().parent.parent
STEPS = ("--steps", "8")
TRAININGS = {
    "resnet": ("keras_resnet.py", "--depth", "20", "--batch", "160"),
    "lstm": ("keras_lstm.py", "--hidden", "512", "--batch", "20", "--vocab", "6000"),
    "transformer": ("keras_transformer.py", "--batch", "12", "--hidden", "256", "--heads", "4", "--layers", "3"),
    "dcgan": ("keras_dcgan.py", "--batch", "56"),
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.fixture(scope="module")
def tensorflow():
    path, reason = training.python_with("tensorflow")
    return path or pytest.skip(reason)


@pytest.fixture(scope="module", params=TRAININGS)
def reference(request, tensorflow, plain):
    """One operator at a time, deterministic ones."""
    script, *flags = *TRAININGS[request.param], *STEPS
    return plain(script, *flags, interpreter=tensorflow), script, flags


@pytest.fixture(scope="module")
def recorded(reference, tensorflow, sentinel, tmp_path_factory):
    """The training under `sentinel record`, and its profile."""
    _, script, flags = reference
    folder = tmp_path_factory.mktemp("recorded")
    record, profile = folder / "record.json", folder / "profile.sentinel"
    outcome = sentinel("record", "-o", profile, "--", tensorflow, training.WORKLOADS / script, *flags,
                       "--json", record)
    assert outcome.status == 0 and profile.exists(), outcome.err
    outcome.record_file = record
    return outcome, profile


def test_recorded_bit_identity(reference, recorded):
    assert training.compare(reference[0], recorded[0]) is None


# Of each model: Keras layers in the order of the forward pass, ops that make its tensors, its optimizer.
NAMES = {
    "keras_resnet.py": (["stem", "s0b2_conv1", "s1b0_conv1", "head"], ["Conv2D", "BackpropFilter"], "sgd"),
    "keras_lstm.py": (["embedding", "lstm0/lstm_cell", "lstm1/lstm_cell", "decoder"], ["MatMul", "Softmax"], "adam"),
    "keras_transformer.py": (["words", "block0_attention/query", "block0_widen", "block2_attention/query", "decoder"],
                             ["MatMul", "Softmax"], "adam_w"),
    "keras_dcgan.py": (["up0", "up2", "image"], ["Conv2D", "BackpropInput"], "draw_adam"),
}


def test_names(reference, recorded, sentinel):
    script, profile = reference[1], recorded[1]
    forward, ops, optimizer = NAMES[script]

    def rows(view):
        return json.loads(sentinel("report", profile, view, "--rows", "0", "--format", "json").out)["rows"]

    begins = {(row["name"], row["phase"]): row["layer"] for row in rows("layers")}
    order = [begins[name, "forward"] for name in forward]
    order += [begins[name, "backward"] for name in reversed(forward) if name not in ("embedding", "words")]
    assert order == sorted(order) and begins["(no layer)", "forward"] == 0
    assert begins[optimizer, "optimizer"] > begins[forward[-1], "forward"]
    makers = {row["name"] for row in rows("tensors")}
    assert all(any(op in name for name in makers) for op in ops)
    summary = json.loads(sentinel("report", profile, "summary", "--format", "json").out)
    assert summary["framework"].startswith("tensorflow 2.") and summary["counts"]["source"] == "userfaultfd"
    text = sentinel("report", profile, "summary").out  # the paper's section III, beside its figures
    assert all(f"Observation {n}" in text for n in (1, 2, 3)) and "falsely shared" in text
    page = sentinel("report", profile, "heatmap", "--format", "html").out
    assert all(name in page for name in (*forward, *ops, optimizer))
    assert any(op in sentinel("report", profile, "heatmap").out for op in ops)


def test_bit_identity(reference, tensorflow, under, expect_same):
    first, script, flags = reference
    outcome = under("20%", script, *flags, interpreter=tensorflow)
    expect_same(first, outcome)
    assert outcome.phases()[5:] == ["steady"] * 3
    assert outcome.phases().count("profile") == 1
    summary = outcome.summary
    # The first kind of step that is planned settles the limit. TensorFlow's loops do not run their ops in the
    # same order each time: a second kind may come, and its peak may be a little higher.
    share = summary["fast_limit_bytes"] / summary["peak_unlimited_bytes"]
    assert share == pytest.approx(0.2, rel=1e-6) if summary["plans"] == 1 else 0.18 < share < 0.2 + 1e-6
    assert all(step["demoted_bytes"] and step["promoted_bytes"] for step in summary["steps"][6:])
    assert summary["no_replays"] == "this framework's adaptor cannot run an op again"


def test_a_smaller_last_batch_has_a_plan_of_its_own(tensorflow, plain, under, expect_same):
    script, *flags = *TRAININGS["resnet"], "--steps", "12", "--images", "280", "--last-batch", "--threads", "2"
    outcome = under("30%", script, *flags, interpreter=tensorflow)
    expect_same(plain(script, *flags, interpreter=tensorflow), outcome)
    assert outcome.summary["plans"] >= 2


def test_ops_at_the_same_time(tensorflow, under, expect_plain):
    """With several inter-op threads their order differs from step to step."""
    script, *flags = *TRAININGS["resnet"], *STEPS, "--inter-op", "3", "--last-batch", "--images", "900"
    outcome = under("20%", script, *flags, interpreter=tensorflow)
    expect_plain(outcome, script, *flags, interpreter=tensorflow)
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


def test_budget_is_held_in_a_memory_cgroup(reference, recorded, tensorflow, build, sentinel, tmp_path):
    """The kernel enforces it: what is not tensors, a fifth of the tensors, and 96 MiB. What is not tensors
    is a process's peak less that of its own tensors: TensorFlow chooses its order of ops anew in each
    process, and with it how much lives at once."""
    first, script, flags = reference
    train = [build / "bin" / "sentinel", "run", tensorflow, training.WORKLOADS / script, *flags]
    record, whole = tmp_path / "record.json", tmp_path / "whole.json"
    outcome, peak = in_group([*train[:2], "--fast", "100%", "--summary", whole, "--", *train[2:]], env=GIVE_BACK)
    assert outcome.status == 0, outcome.err
    rest = peak - json.loads(whole.read_text())["peak_fast_bytes"]
    tensors = json.loads(sentinel("report", recorded[1], "summary", "--format", "json").out)["peak_live_bytes"]
    limit = rest + tensors // 5 + (96 << 20)
    assert limit < peak, "all tensors fit: the limit proves nothing"
    held, _ = in_group([*train[:2], "--fast", "20%", "--profile", recorded[1], "--", *train[2:], "--json", record],
                       limit)
    assert held.status == 0, held.err
    held.record_file = record
    assert training.compare(first, held) is None
    assert "of another step" not in held.err, "its order of ops may be another"


@pytest.mark.parametrize("reference", ["resnet"], indirect=True)
def test_a_stored_plan(reference, recorded, tensorflow, under, sentinel, expect_same, tmp_path):
    """It is followed in a process that runs its ops in another order."""
    first, script, flags = reference
    plan = tmp_path / "plan.json"
    assert sentinel("plan", recorded[1], "--fast", "30%", "-o", plan).status == 0
    outcome = under(None, script, *flags, interpreter=tensorflow, options=("--plan", plan))
    expect_same(first, outcome)
    assert "profile" not in outcome.phases() and outcome.phases()[-1] == "steady"


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


def test_fit_compiled_by_xla(tensorflow, plain, under, expect_same, sentinel, tmp_path):
    script, *flags = "keras_resnet.py", "--depth", "8", "--batch", "160", "--xla", *STEPS
    first = plain(script, *flags, interpreter=tensorflow)
    profile = tmp_path / "profile.sentinel"
    outcome = under("50%", script, *flags, interpreter=tensorflow, options=("-o", profile))
    expect_same(first, outcome)
    assert "steady" in outcome.phases()
    assert "(XLA cluster)" in sentinel("report", profile, "tensors", "--rows", "0", "--format", "csv").out


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


def test_the_package_index_cannot_be_reached(tmp_path):
    made = training.finish(["bash", TESTS / "framework-env.sh", "tensorflow"], env={
        "XDG_CACHE_HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"})
    assert (made.status, made.out) == (training.UNREACHABLE, "") and "cannot be reached" in made.err
    assert not list(tmp_path.glob("sentinel/tensorflow-*/")), "half an environment is left"


def test_other_symbols(tensorflow, sentinel, tmp_path):
    """A wheel that has the headers, and libraries without what they declare."""
    find = "import importlib.util; print(importlib.util.find_spec('tensorflow').submodule_search_locations[0])"
    folder = training.finish([tensorflow, "-c", find]).out.strip()
    package, installed = tmp_path / "tensorflow", tmp_path / "tensorflow_cpu-2.99.0.dist-info"
    package.mkdir()
    installed.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "include").symlink_to(pathlib.Path(folder) / "include")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.99.0\n")
    (tmp_path / "empty.c").write_text("int nothing;\n")
    for library in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        made = training.finish(["cc", "-shared", "-fPIC", "-o", package / library, tmp_path / "empty.c"])
        assert made.status == 0, made.err
    outcome = sentinel("run", "--fast", "64M", "--", tensorflow, "-c", "import tensorflow", cwd=tmp_path,
                       env={"XDG_CACHE_HOME": str(tmp_path)})
    assert outcome.status == 125 and "TensorFlow 2.99.0" in outcome.err and "undefined reference" in outcome.err
    assert "imported" not in outcome.err


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


BY_HAND = """
    import sentinel, tensorflow as tf
    weights = [tf.Variable(tf.fill((1500, 1500), 1e-4)) for _ in range(3)]
    x = tf.ones((64, 1500))
    for _ in range(8):
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.tanh(y @ weight)
                sentinel.add_layer()
            loss = tf.reduce_sum(y)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(1e-6 * gradient)
        print(float(loss).hex())
        sentinel.step()
"""


def test_a_loop_without_an_optimizer_of_keras(tensorflow, sentinel, tmp_path):
    script, profile, summary = (tmp_path / name for name in ("loop.py", "loop.sentinel", "summary.json"))
    script.write_text(textwrap.dedent(BY_HAND))
    plain = textwrap.dedent(BY_HAND).replace("import sentinel, ", "import ").replace("sentinel.step()", "pass").replace(
        "sentinel.add_layer()", "pass")
    alone = training.finish([tensorflow, "-c", plain], env=QUIET)
    assert alone.status == 0, alone.err
    outcome = sentinel("run", "--fast", "60%", "-o", profile, "--summary", summary, "--", tensorflow, script, env=QUIET)
    assert (outcome.status, outcome.out) == (0, alone.out), outcome.err
    assert [step["phase"] for step in json.loads(summary.read_text())["steps"]][5:] == ["steady"] * 3
    table = sentinel("report", profile, "layers", "--format", "csv").out
    assert {row["name"] for row in csv.DictReader(io.StringIO(table))} >= {f"layer {n}" for n in (1, 2, 3)}


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
