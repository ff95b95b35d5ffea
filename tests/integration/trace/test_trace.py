"""`sentinel trace` runs a training without its memory. The trace has the ops, tensors, layers and lives of the same
training's recording; what it cannot trace, it refuses and says where."""
import collections
import contextlib
import json
import pathlib
import sqlite3

import pytest

from training import WORKLOADS

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "scripts"
SMALL = ["--images", "2048", "--steps", "6"]
MODELS = {
    "ResNet-110": ["resnet_cifar.py", "--depth", "110", "--batch", "8", *SMALL],
    "ResNet-32": ["resnet_cifar.py", "--depth", "32", "--batch", "32", *SMALL],
    "MobileNetV1": ["mobilenet.py", "--batch", "32", *SMALL],
    "MobileNetV2": ["mobilenet.py", "--version", "2", "--batch", "8", *SMALL],
    "DCGAN": ["dcgan.py", "--batch", "16", *SMALL],
    "LSTM": ["lstm_lm.py", "--hidden", "400", "--layers", "2", "--batch", "16", "--seq", "20", "--steps", "6"],
    "BERT-base": ["bert_mlm.py", "--layers", "2", "--hidden", "256", "--heads", "4", "--batch", "4", "--seq", "64",
                  "--steps", "6"],
}
WORKSPACE = 2
A_NUMBER = 16  # bytes: what PyTorch makes of numbers has no op of its own, and is not in a trace


class Step:
    """Of a profile's file."""

    def __init__(self, file):
        with contextlib.closing(sqlite3.connect(file)) as base:
            self.ops = base.execute("SELECT name, layer, phase FROM ops ORDER BY id").fetchall()
            self.layers = [name for name, in base.execute("SELECT name FROM layers ORDER BY id")]
            self.tensors = base.execute("SELECT bytes, kind, alloc_op, free_op FROM tensors WHERE NOT is_foreign").fetchall()
            self.operands = base.execute("SELECT op, t.bytes, mode FROM operands JOIN tensors t ON t.id = tensor "
                                         "WHERE NOT is_foreign AND kind != ?", (WORKSPACE,)).fetchall()

    def names(self):
        """Autograd updates in place less often where tensors have no memory, and views by another op."""
        views = {"aten::_reshape_alias": "aten::view"}
        return [views.get(name, name).rstrip("_") for name, _, _ in self.ops]

    def layered(self):
        return [(self.layers[layer], phase) for _, layer, phase in self.ops]

    def kept(self):
        """Tensors that more than one op sees."""
        return [tensor for tensor in self.tensors if tensor[1] != WORKSPACE and tensor[0] > A_NUMBER]

    def sizes_by(self, column):
        found = collections.defaultdict(list)
        for tensor in self.kept():
            found[tensor[column]].append(tensor[0])
        return {op: sorted(sizes) for op, sizes in found.items()}

    def read(self):
        found = collections.defaultdict(collections.Counter)
        for op, size, mode in self.operands:
            if size > A_NUMBER and mode != 2:
                found[op][size] += 1
        return found

    def peak(self):
        change = [0] * (len(self.ops) + 1)
        for size, _, born, dies in self.kept():
            change[born or 0] += size
            change[len(self.ops) if dies is None else dies + 1] -= size
        now = most = 0
        for each in change:
            now += each
            most = max(most, now)
        return most


@pytest.fixture(scope="module")
def trace(sentinel, python, tmp_path_factory):
    """trace(*command, options=...): its outcome, with .file."""
    def run(*command, options=(), name="step.sentinel", interpreter=None):
        file = tmp_path_factory.mktemp("trace") / name
        outcome = sentinel("trace", "-o", file, *options, "--", interpreter or python, *command)
        outcome.file = file
        return outcome
    return run


@pytest.mark.parametrize("model", MODELS)
def test_it_is_as_recorded(model, trace, sentinel, python, tmp_path):
    script, *flags = MODELS[model]
    made = sentinel("record", "--count", "ops", "-o", tmp_path / "recorded", "--", python, WORKLOADS / script, *flags,
                    env={"OMP_NUM_THREADS": "1"})
    assert made.status == 0, made.err
    outcome = trace(WORKLOADS / script, *flags)
    assert outcome.status == 0, outcome.err
    recorded, traced = Step(tmp_path / "recorded"), Step(outcome.file)
    assert traced.names() == recorded.names()
    assert traced.layered() == recorded.layered()
    opaque = [op for op, name in enumerate(recorded.names()) if "rnn_layer" in name]  # oneDNN's workspace: estimated
    for column in (2, 3):
        expected, found = recorded.sizes_by(column), traced.sizes_by(column)
        differ = [op for op in expected.keys() | found.keys() if expected.get(op) != found.get(op)]
        small = [op for op in differ if op not in opaque and sum(found.get(op, [])) + sum(expected.get(op, [])) > 1024]
        assert not small, [(recorded.names()[op], expected.get(op), found.get(op)) for op in small[:5]]
    assert abs(traced.peak() - recorded.peak()) < 0.05 * recorded.peak()
    persistent = [sum(tensor[0] for tensor in step.kept() if tensor[2] is None and tensor[3] is None)
                  for step in (recorded, traced)]
    assert persistent[0] == persistent[1]
    expected, found = recorded.read(), traced.read()
    assert not [op for op in found if found[op] - expected[op] and op not in opaque], "what it reads, it reads there"


def test_all_verbs_read_it(trace, sentinel, tmp_path):
    script, *flags = MODELS["ResNet-32"]
    outcome = trace(WORKLOADS / script, *flags, options=("--machine", "v100-16gb"))
    assert outcome.status == 0 and "an estimate for v100-16gb" in outcome.err, outcome.err
    assert "op times are estimates for v100-16gb" in " ".join(sentinel("report", outcome.file).out.split())
    simulated = sentinel("simulate", outcome.file, "--machine", "v100-16gb", "--fast", "40%", "--json")
    assert simulated.status == 0 and json.loads(simulated.out)["results"][0]["feasible"], simulated.err
    assert "estimates" not in simulated.err
    other = sentinel("simulate", outcome.file, "--machine", "a100-g10", "--fast", "40%")
    assert "estimates for v100-16gb, and not for a100-g10" in other.err, other.err
    assert sentinel("compare", outcome.file, "--machine", "v100-16gb", "--fast", "40%", "--policy", "g10,lru").status == 0
    plan = tmp_path / "plan.json"
    assert sentinel("plan", outcome.file, "--machine", "v100-16gb", "--fast", "40%", "-o", plan).status == 0
    assert sentinel("explain", plan).status == 0


def test_a_tensor_trace_keeps_lives(trace, sentinel, tmp_path):
    script, *flags = MODELS["MobileNetV1"]
    stored = Step(trace(WORKLOADS / script, *flags).file)
    for name in ("step.jsonl.gz", "step.jsonl"):
        outcome = trace(WORKLOADS / script, *flags, name=name)
        assert outcome.status == 0, outcome.err
        assert (outcome.file.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
        assert [each.name for each in outcome.file.parent.iterdir()] == [name]
        assert sentinel("import", outcome.file, "-o", tmp_path / f"of {name}").status == 0
        imported = Step(tmp_path / f"of {name}")
        assert imported.tensors == stored.tensors and imported.peak() == stored.peak()


BEGIN = """
import torch
net = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(6):
    optimizer.zero_grad()
    out = net(torch.randn(256, 512))
    loss = out.square().mean()
"""
END = """
    loss.backward()
    optimizer.step()
"""


def test_what_looks_at_a_value_ends_with_its_line(trace, tmp_path):
    script = tmp_path / "looks.py"
    script.write_text(f"{BEGIN}    if loss > 3: loss = loss * 2\n{END}")
    outcome = trace(script)
    assert outcome.status == 125 and not outcome.file.exists()
    assert f"{script}:9 decides by the value of a tensor" in outcome.err and "sentinel record" in outcome.err, outcome.err


LOOKS = {
    "if loss > 3: loss = loss * 2": "decides by the value of a tensor",
    "if loss.item() > 3: loss = loss * 2": "decides by the value of a tensor",
    "out = out[out > 0]": "the size of its result depends on the values",
    "torch.zeros(int((out > 0).sum()))": "takes the value of a tensor for a size",
    "torch.zeros((out > 0).sum().item())": "takes the value of a tensor for a size",
    "loss.detach().numpy()": "turns a tensor into a NumPy array",
    "out.tolist()": "turns a tensor into a list",
}
GOES_ON = """
class Ended(BaseException): pass
def end(status):
    print(status)
    raise Ended
import os
os._exit = end
"""


def test_what_looks_at_values_is_refused(trace, tmp_path):
    """One process for all: each ends it, and it goes on. PyTorch takes any exception of a size for a TypeError."""
    script = tmp_path / "looks.py"
    lines = f"{GOES_ON}{BEGIN}".splitlines()
    first = len(lines) + 2
    for line in LOOKS:
        lines += ["    try:", f"        {line}", "    except (Ended, TypeError): pass"]
    script.write_text("\n".join([*lines, "    break"]))
    outcome = trace(script)
    assert outcome.out.split() == ["125"] * len(LOOKS), outcome.err
    for number, (line, says) in enumerate(LOOKS.items()):
        at = f"{script}:{first + 3 * number} "
        told = [each for each in outcome.err.splitlines() if at in each and says in each and "sentinel record" in each]
        assert len(told) == 1, (line, outcome.err)


def test_what_prints_values_is_told(trace, tmp_path):
    script = tmp_path / "prints.py"
    script.write_text(BEGIN + "    print(step, loss.item(), f'{loss:.2f}', (out > 0).sum().item() / 256)\n"
                      "    torch.save(net.state_dict(), '/nonexistent/weights')\n" + END)
    outcome = trace(script)
    assert outcome.status == 0 and outcome.file.exists(), outcome.err
    assert outcome.out.splitlines()[0] == "0 1.0 1.00 0.00390625"
    assert outcome.err.count(f"{script}:9 looks at the value of a tensor") == 1
    assert outcome.err.count("saves tensors") == 1


def test_values_that_decide_how_data_is_loaded_are_known(trace, tmp_path):
    script = tmp_path / "loads.py"
    script.write_text("""
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
data = TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,)))
loader = DataLoader(data, 64, shuffle=True, num_workers=2, persistent_workers=True, timeout=30)
DataLoader(data, 64, True, None, None, 2, None, True, False, 30, None, "fork", prefetch_factor=4)
net = torch.nn.Linear(512, 10)
torch.nn.init.trunc_normal_(torch.nn.Linear(512, 512).weight)
optimizer = torch.optim.Adam(net.parameters())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
lengths = torch.randint(3, 9, (64,))
longest = int(lengths.max())
for images, labels in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(images), labels) + torch.zeros(longest, 8).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
""")
    outcome = trace(script)
    assert outcome.status == 0 and outcome.file.exists(), outcome.err


# Each is false, or has no exception, where all numbers are finite.
FINITE = ("assert not (torch.isnan(loss) or torch.isinf(loss))", "assert torch.isfinite(loss)", "assert loss == loss",
          "assert not torch.isnan(out).any() and torch.isfinite(out).all()", "assert not out.isnan().sum() > 0",
          "assert out.isinf().sum().item() == 0", "assert not torch.any(torch.isnan(out) | torch.isinf(out))",
          "assert not torch.stack([each.isinf().any() for each in net.parameters()]).any()",
          "assert math.isfinite(loss.item()) and out.abs().max() < math.inf",
          "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)")
WIDE = """
import math, torch
net = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 512))
CONVERT
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    optimizer.zero_grad()
    out = net(torch.randn(64, 512, dtype=net[0].weight.dtype))
    loss = out.square().mean()
    loss.backward()
    LOOK
    optimizer.step()
"""


def test_numbers_are_taken_for_finite_ones(trace, tmp_path):
    script = tmp_path / "finite.py"
    script.write_text(WIDE.replace("CONVERT", "").replace("LOOK", "\n    ".join(FINITE)))
    outcome = trace(script)
    assert outcome.status == 0 and outcome.file.exists(), outcome.err


def test_sparse_gradients_beside_a_look(trace, tmp_path):
    script = tmp_path / "sparse.py"
    script.write_text("""
import torch
net = torch.nn.Embedding(8192, 64, sparse=True)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    out = net(torch.randint(0, 8192, (64, 16)))
    bad = torch.isnan(out)
    out.square().mean().backward()
    optimizer.step()
    assert not bad.any()
""")
    outcome = trace(script)
    assert outcome.status == 0, outcome.err


def test_a_flag_that_is_written_is_not_known_any_more(trace, tmp_path):
    script = tmp_path / "written.py"
    script.write_text(WIDE.replace("CONVERT", "").replace("LOOK", "bad = torch.isnan(out)\n    bad.logical_or_(out > 9)\n"
                                                          "    if bad.any(): continue"))
    outcome = trace(script)
    assert outcome.status == 125 and "decides by the value of a tensor" in outcome.err, outcome.err


def test_a_module_that_is_converted_keeps_its_weights(trace, tmp_path):
    steps = {}
    for convert in ("pass", "net.to('cpu')", "net.double()"):
        script = tmp_path / "converts.py"
        script.write_text(WIDE.replace("CONVERT", convert).replace("LOOK", "pass"))
        outcome = trace(script)
        assert outcome.status == 0, outcome.err
        steps[convert] = Step(outcome.file)
    plain, same, double = steps.values()
    assert (same.names(), same.tensors) == (plain.names(), plain.tensors)
    assert double.peak() == 2 * plain.peak()


def test_a_module_that_is_copied_trains_beside_the_first(trace, tmp_path):
    script = tmp_path / "copies.py"
    script.write_text(WIDE.replace("CONVERT", "import copy; mean = copy.deepcopy(net)").replace("LOOK", "[each.data.lerp_("
                      "of.data, 0.1) for each, of in zip(mean.parameters(), net.parameters())]"))
    outcome = trace(script)
    assert outcome.status == 0, outcome.err
    assert sum(name.startswith("aten::lerp") for name in Step(outcome.file).names()) == 4 + 4  # and as many of AdamW


def test_a_trainer_of_transformers(trace):
    outcome = trace(SCRIPTS.parents[2] / "examples" / "finetune_gpt2.py", "--size", "tiny", "--steps", "5")
    assert outcome.status == 0, outcome.err
    assert any("gelu" in name or "tanh" in name for name in Step(outcome.file).names())


def test_a_model_of_7_billion_parameters_takes_no_memory(trace):
    outcome = trace(SCRIPTS / "llama.py", "32", options=("--machine", "a100-g10"))
    assert outcome.status == 0, outcome.err
    parameters, resident = map(int, outcome.out.splitlines()[-1].split())
    assert parameters > 6.5e9 and resident < 4e9
    step = Step(outcome.file)
    states = sum(size for size, _, born, dies in step.tensors if born is None and dies is None)
    assert 12 * parameters <= states < 12 * parameters + 2**20, "parameters and two moments"
    assert step.peak() > 16 * parameters


def test_a_step_that_the_program_marks(trace, tmp_path):
    script = tmp_path / "marks.py"
    script.write_text(f"import sentinel{BEGIN}" """
    loss.backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.1 * parameter.grad
    sentinel.step()
""")
    outcome = trace(script)
    assert outcome.status == 0 and outcome.file.exists(), outcome.err
    assert Step(outcome.file).names().count("aten::sub") == 2


@pytest.mark.parametrize("status", [0, 7])
def test_a_script_of_one_step(status, trace, tmp_path):
    script = tmp_path / "one.py"
    script.write_text((BEGIN + END).replace("range(6)", "range(1)") + f"raise SystemExit({status})\n")
    outcome = trace(script)
    assert outcome.status == status and outcome.file.exists()
    assert "it has one step, in which the optimizer makes its states" in outcome.err


@pytest.fixture
def tensorflow(tmp_path):
    """A package of that name beside the scripts."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").touch()


def test_tensorflow_beside_pytorch_is_left_alone(tensorflow, trace, tmp_path):
    script = tmp_path / "both.py"
    script.write_text(BEGIN.replace("import torch", "import torch, tensorflow") + END)
    outcome = trace(script)
    assert outcome.status == 0 and outcome.file.exists(), outcome.err
    assert "tensorflow is left alone" in outcome.err


def test_tensorflow_is_refused(tensorflow, trace, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow\nprint('trains')\n")
    outcome = trace(script)
    assert outcome.status == 125 and not outcome.out and not outcome.file.exists()
    assert "TensorFlow cannot be traced" in outcome.err and "sentinel record" in outcome.err, outcome.err


def test_no_step(trace):
    outcome = trace("-c", "import torch; torch.ones(3) + 1")
    assert outcome.status == 125 and "no training step was seen" in outcome.err and not outcome.file.exists()


def test_a_script_that_fails(trace):
    outcome = trace("-c", "raise SystemExit(7)")
    assert outcome.status == 7 and not outcome.file.exists()


def test_pytorch_1_is_refused(trace, torch1, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(BEGIN + END)
    outcome = trace(script, interpreter=torch1)
    assert outcome.status == 125 and "needs PyTorch 2.1 or later" in outcome.err and "sentinel record" in outcome.err


def test_a_machine_without_rates(trace, tmp_path):
    machine = tmp_path / "bare.toml"
    machine.write_text('name = "bare"\n[[tier]]\nname = "a"\nread_bw = "1GB/s"\n[[tier]]\nname = "b"\n')
    outcome = trace("-c", "pass", options=("--machine", machine))
    assert outcome.status == 125 and 'add "flops"' in outcome.err


FITS = """
import os, sys
batch, traced = int(sys.argv[1]), os.environ["SENTINEL_MODE"] == "trace"
with open(sys.argv[2], "a") as file:
    print("traced" if traced else "run", batch, file=file)
if not traced:
    sys.exit(0)
import torch
net = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = net(torch.randn(batch, 256)).square().mean()
    loss.backward()
    loss.item()
    optimizer.step()
"""


@pytest.fixture
def fit(sentinel, python, tmp_path):
    """fit(script, *options): its outcome, and what it did with which batch."""
    def run(text, *options):
        script, done = tmp_path / "fits.py", tmp_path / "done"
        script.write_text(text)
        outcome = sentinel("fit", "--fast", "64M", "--slow", "/var/tmp", "--machine", "v100-16gb", "--from", "1024",
                           *options, "--", python, script, "{}", done, env={"TMPDIR": str(tmp_path)})
        assert not list(tmp_path.glob("sentinel-fit-*"))
        return outcome, done.read_text().splitlines()
    return run


def test_fit_traces_and_confirms_with_one_run(fit):
    outcome, lines = fit(FITS)
    assert outcome.status == 0, outcome.err
    assert [line for line in lines if line.startswith("run")] == [f"run {outcome.out.strip()}"]
    assert len(lines) > 2 and outcome.err.count("looks at the value of a tensor") == 1, outcome.err  # not for each batch
    # Two operands of an op have to fit at once: batch * 256 * 4 bytes each, and a weight.
    assert 16384 < int(outcome.out) < 64 * 2**20 // 1024, outcome.err


def test_fit_runs_a_later_batch_that_cannot_be_traced(fit):
    fails = "if traced and batch > 1024: sys.exit(5)\n"
    outcome, lines = fit(FITS.replace("import torch", f"{fails}import torch"), "--most", "2048")
    assert outcome.status == 0 and outcome.out == "2048\n", outcome.err
    assert lines == ["traced 1024", "traced 2048", "run 2048"]
    assert "batch 2048 cannot be traced, so it is run" in outcome.err


def test_fit_needs_a_machine_for_the_speed_of_a_gpu(sentinel):
    outcome = sentinel("fit", "--fast", "1G", "--tiers", "fast=gpu0,slow=host", "--target", "0.8", "--", "true", "{}")
    assert outcome.status == 2 and "add --machine" in outcome.err
