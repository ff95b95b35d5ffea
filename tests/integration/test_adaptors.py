"""What both frameworks' adaptors share: where a step ends, which framework of two is attached to, one
that comes before Sentinel can see it."""
import importlib.util
import pathlib
import sys
import types

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def attach(monkeypatch):
    """The module itself, without a framework, as a process of its own runs it."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "libsentinel/python/sentinel"))
    import _attach
    yield _attach
    for name in ("_attach", "_prebuilt"):
        sys.modules.pop(name)


class Updater:
    pass


def ends(attach, names):
    """Behind which updates a step ends, of "ABAB": the names' places."""
    places, updaters = [], {name: Updater() for name in names}
    steps = attach.Steps(lambda: places.append(at))
    for at, name in enumerate(names):
        steps.updated(updaters[name])
    return places


@pytest.mark.parametrize("names, places", [
    ("AAAA", [0, 1, 2, 3]),                  # one optimizer
    ("ABABAB", [0, 3, 5]),                   # two: known when the first comes round again
    ("ABCABCABC", [0, 5, 8]),
    ("ABABAB" "CCC", [0, 3, 5, 7, 8]),       # then another, alone
    ("AAA" "BBB", [0, 1, 2, 4, 5]),          # one after another
    ("ABABAB" "CDCDCD", [0, 3, 5, 8, 11]),  # two others
    ("ABABAB" "AAA", [0, 3, 5, 7, 8])])      # one of them goes on alone
def test_where_a_step_ends(attach, names, places):
    assert ends(attach, names) == places


def fake_tensorflow(folder):
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text("fake = True\n")


def test_the_second_framework_is_left_alone(python, sentinel, tmp_path):
    fake_tensorflow(tmp_path)
    outcome = sentinel("run", "--fast", "64M", "--", python, "-c",
                       "import torch, tensorflow; print(tensorflow.fake, int(torch.ones(3).sum()))", cwd=tmp_path)
    assert (outcome.status, outcome.out) == (0, "True 3\n"), outcome.err
    assert "torch trains under Sentinel in this process, so tensorflow is left alone" in outcome.err


def test_the_other_way_round(python, sentinel, tmp_path):
    fake_tensorflow(tmp_path)
    outcome = sentinel("run", "--fast", "64M", "--", python, "-c", "import torch, tensorflow", cwd=tmp_path,
                       env={"SENTINEL_FRAMEWORK": "tensorflow"})
    assert outcome.status == 125 and "no headers or libraries" in outcome.err


def test_imported_before_it_can_be_seen(python, sentinel, tmp_path):
    fake_tensorflow(tmp_path)
    (tmp_path / "sitecustomize.py").write_text("import tensorflow\n")
    outcome = sentinel("run", "--fast", "64M", "--", python, "-c", "print('trains')",
                       env={"PYTHONPATH": str(tmp_path)})
    assert outcome.status == 125 and "cannot be replaced any more" in outcome.err and not outcome.out


@pytest.fixture
def torch_gpu(attach, monkeypatch):
    """The adaptor's module for GPUs, without PyTorch."""
    package = types.ModuleType("sentinel")
    package._attach = attach
    monkeypatch.setitem(sys.modules, "sentinel", package)
    monkeypatch.setitem(sys.modules, "sentinel._attach", attach)
    package._torch_groups = types.ModuleType("sentinel._torch_groups")
    path = REPOSITORY / "torchplugin/python/sentinel/_torch_gpu.py"
    spec = importlib.util.spec_from_file_location("sentinel._torch_gpu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_session_on_a_gpu_gets_every_part(torch_gpu, monkeypatch):
    """test_torch_gpu.py tests each part by itself."""
    parts = {"_plug_in": 3, "_keep_cudnn_from_searching": 1, "_refuse_graphs": 1, "_refuse_collectives": 2,
             "split_optimizers": 2, "tell_launches": 2}
    called = {}
    for part in parts:
        monkeypatch.setattr(torch_gpu, part, lambda *arguments, part=part: called.update({part: len(arguments)}))
    torch_gpu.manage("torch", "core", "adaptor")
    assert called == parts
