"""Optimizers and norms that name all tensors in one op go group by group in the processor's memory: a plan moves one
group while another is computed, and every bit stays."""
import pytest

import training

TRAIN = """
import hashlib, sys, torch
torch.manual_seed(1)
torch.set_num_threads(2)
name, how = sys.argv[1:]
model = torch.nn.Sequential(*[torch.nn.Linear(1536, 1536) for _ in range(6)])
words = {how: True} if how != "plain" else {}
optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **words)
averages = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)  # of all weights in one op
averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averages)
for step in range(8):
    loss = model(torch.randn(16, 1536)).square().mean()
    loss.backward()
    print(step, loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
    optimizer.step()
    averaged.update_parameters(model)
    optimizer.zero_grad(set_to_none=step % 2 == 0)
weights = [*model.state_dict().values(), *averaged.state_dict().values()]
print(hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest())
"""


@pytest.mark.parametrize("name, how", [("AdamW", "fused"), ("Adam", "foreach"), ("SGD", "fused"), ("Adagrad", "foreach"),
                                       ("Adafactor", "foreach"), ("RMSprop", "plain")])
def test_every_bit_stays(sentinel, python, tmp_path, name, how):
    words = [python, "-c", TRAIN, name, how]
    plain = training.finish(words)
    assert plain.status == 0, plain.err
    summary = tmp_path / "run.json"
    outcome = sentinel("run", "--fast", "40%", "--summary", summary, "--", *words)
    assert (outcome.status, outcome.out) == (0, plain.out), outcome.err
    assert training.read_json(summary)["steps"][-1]["promoted_bytes"] > 0


GROUPS = """
import torch
import torch.optim.optimizer as optimizer
tensors = [torch.ones(2 << 20) for _ in range(5)] + [torch.ones(3) for _ in range(3)]
groups = optimizer._group_tensors_by_device_and_dtype([tensors], with_indices=True).values()
print([indices for _, indices in groups])
"""


def test_groups_have_sixteen_megabytes(sentinel, python):
    assert training.finish([python, "-c", GROUPS]).out == "[[0, 1, 2, 3, 4, 5, 6, 7]]\n"
    assert sentinel("run", "--fast", "64M", "--", python, "-c", GROUPS).out == "[[0, 1], [2, 3], [4, 5, 6, 7]]\n"


KEPT_WHOLE = """
import torch
import torch.optim.optimizer as optimizer
group = optimizer._group_tensors_by_device_and_dtype
def groups(*lists):
    return [len(parts[0]) for parts, _ in group(list(lists)).values()]

large = [torch.ones(4 << 20) for _ in range(3)]
print("apart", groups(large), "twice the same", groups([*large, large[0]]))
flat = torch.ones(12 << 20)
print("views", groups(list(flat.split(4 << 20))), "views that overlap", groups([flat[: 5 << 20], flat[4 << 20:], large[0]]))
print("sparse gradients", groups(large, [torch.ones(4 << 20).to_sparse() for _ in range(3)]))

calls = []
averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(3)]),
                                               multi_avg_fn=lambda averages, current, count: calls.append(len(averages)))
for _ in range(3):
    averaged.update_parameters(averaged.module)
print("an average of the program's own", calls)

@torch.jit.script
def zeroed(tensors: list[torch.Tensor]):
    torch._foreach_zero_(tensors)
zeroed(large)
print("from TorchScript", [int(one.sum()) for one in large])
print("the list that was given", torch._foreach_zero_(self=large) is large or torch._foreach_zero_(large) is None)
"""


def test_what_is_kept_whole(sentinel, python, tmp_path):
    script = tmp_path / "script.py"  # TorchScript reads it
    script.write_text(KEPT_WHOLE)
    outcome = sentinel("run", "--fast", "256M", "--", python, script)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [
        "apart [1, 1, 1] twice the same [4]", "views [1, 1, 1] views that overlap [3]", "sparse gradients [3]",
        "an average of the program's own [6, 6]", "from TorchScript [0, 0, 0]", "the list that was given True"]


COMPILED = """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(20)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

@torch.compile(backend="aot_eager", fullgraph=True)
def clipped():
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)

for step in range(4):
    loss = model(torch.randn(16, 512)).square().mean()
    loss.backward()
    print(loss.item(), clipped().item())
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""


def test_what_is_compiled_is_left_as_it_is(sentinel, python):
    """The norm is within one graph, as without Sentinel."""
    plain = training.finish([python, "-c", COMPILED])
    assert plain.status == 0, plain.err
    outcome = sentinel("run", "--", python, "-c", COMPILED)
    assert (outcome.status, outcome.out) == (0, plain.out), outcome.err
