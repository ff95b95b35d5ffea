"""Tensors that a plan drops and makes again behind the same address: the training gives the same bits, or stops with a
sentence before a wrong number exists. The drive is described as slow, so that replays are worth their time."""
import functools
import pathlib
import subprocess

import compiled_once
import pytest

import training

SCRIPTS = pathlib.Path(__file__).parent / "scripts"

MODEL = """
import torch
torch.manual_seed(1)
torch.set_num_threads(1)
net = torch.nn.Sequential(*(layer for _ in range(8) for layer in (
    torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.ReLU(inplace=True))))
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
rows = torch.randn(8192, 256)
for step in range(9):
    optimizer.zero_grad()
    loss = net(rows).square().mean()
    loss.backward()
    optimizer.step()
    print(step, float(loss.detach()).hex(), flush=True)
for parameter in net.parameters():
    print(parameter.double().sum().item().hex())
"""


@pytest.fixture(scope="session")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("replays") / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="session")
def without():
    """without(command): the outcome of it without Sentinel, run only once."""
    return functools.cache(lambda *command: training.finish(command))


@pytest.fixture
def replayed(sentinel, slow_machine, script, without, tmp_path):
    """replayed(interpreter, policy, **environment): the outcome of the training within 40 % of its memory."""

    def run(interpreter, policy="home", command=None, **environment):
        summary = tmp_path / "summary.json"
        command = [interpreter, *(command or [script])]
        asked = ["--policy", policy] if policy else []
        outcome = sentinel("run", "--machine", slow_machine, *asked, "--fast", "40%", "--summary", summary, "--",
                           *command, env=environment)
        outcome.plain = without(*command)
        if outcome.status == 0:
            outcome.summary = training.read_json(summary)
        return outcome
    return run


def expect_replays(outcome):
    assert outcome.status == outcome.plain.status == 0, outcome.err
    assert outcome.out == outcome.plain.out
    for figure in ("replays", "discarded_bytes", "replayed_bytes"):
        assert sum(step.get(figure, 0) for step in outcome.summary["steps"]) > 0, figure
    assert "no_replays" not in outcome.summary and "again, by" in outcome.err
    rows = outcome.summary["made_again"]
    assert rows and all(row["replay_ms"] > 0 and row["move_ms"] > 0 for row in rows)
    assert all(tensor["maker"]["name"].startswith("aten::") for row in rows for tensor in row["tensors"])


@pytest.mark.parametrize("policy", ["home", "auto"])
def test_what_is_made_again_has_the_same_bits(policy, replayed, python):
    outcome = replayed(python, policy)
    expect_replays(outcome)
    assert any(row.get("measured_ms", 0) > 0 for row in outcome.summary["made_again"])


def steps(count, tmp_path):
    """The model's script, with so many steps."""
    path = tmp_path / f"steps-{count}.py"
    path.write_text(MODEL.replace("range(9)", f"range({count})"))
    return path


def test_without_a_policy_the_better_plan_is_taken(replayed, python, tmp_path):
    outcome = replayed(python, policy=None, command=[steps(8, tmp_path)])
    expect_replays(outcome)
    assert outcome.summary["policy"] == "auto"
    without = replayed(python, policy="sentinel")
    assert without.summary["policy"] == "sentinel" and without.summary["no_replays"]
    assert outcome.summary["predicted_ms"] < 0.95 * without.summary["predicted_ms"]


def test_steps_tell_which_plan_is_better(replayed, python, tmp_path):
    """The real drive is fast: by then its plan without replays may be the better one, and either goes on."""
    outcome = replayed(python, policy=None, command=[steps(24, tmp_path)])
    expect_replays(outcome)
    with_replays = [step.get("replays", 0) > 0 for step in outcome.summary["steps"] if step["phase"] == "steady"]
    assert all(with_replays[1:5]) and not any(with_replays[5:10])
    assert outcome.err.count("ms with replays and ") == 1
    goes_on = "it goes on with them" in outcome.err
    assert goes_on or "it goes on without" in outcome.err
    assert with_replays[11:] == [goes_on] * len(with_replays[11:])
    assert outcome.summary["policy"] == ("auto" if goes_on else "sentinel")
    assert ("a step makes " in outcome.err) == goes_on
    assert ("a step of the plan that was given up made " in outcome.err) == (not goes_on)
    assert all(row.get("given_up", False) != goes_on for row in outcome.summary["made_again"])


def test_steps_that_nothing_marks(replayed, python, tmp_path):
    by_hand = tmp_path / "by_hand.py"
    by_hand.write_text(MODEL.replace("optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)\n", "")
                       .replace("optimizer.zero_grad()", "net.zero_grad()")
                       .replace("    optimizer.step()\n", "    with torch.no_grad():\n"
                                "        for parameter in net.parameters():\n"
                                "            parameter -= 0.01 * parameter.grad\n"))
    assert "optimizer" not in by_hand.read_text()
    expect_replays(replayed(python, command=[by_hand]))


def test_pytorch_1(replayed, torch1):
    expect_replays(replayed(torch1))


def test_they_can_be_switched_off(replayed, python):
    outcome = replayed(python, SENTINEL_RECOMPUTE="0")
    assert outcome.status == outcome.plain.status == 0 and outcome.out == outcome.plain.out
    assert outcome.summary["no_replays"] == "recomputation is off" and "made_again" not in outcome.summary
    assert all("replays" not in step for step in outcome.summary["steps"])


def test_who_asks_with_a_policy_that_plans_none_is_told(replayed, python):
    outcome = replayed(python, policy="sentinel", SENTINEL_RECOMPUTE="1")
    assert outcome.status == 0 and outcome.summary["no_replays"] == "policy sentinel has planned none"
    assert outcome.err.count("nothing was made again: policy sentinel has planned none") == 1


def test_a_plan_made_beforehand_replays_as_explained(sentinel, slow_machine, script, without, tmp_path, python):
    profile, plan, summary = (tmp_path / name for name in ("p.sentinel", "plan.json", "s.json"))
    assert sentinel("record", "-o", profile, "--", python, script).status == 0
    made = sentinel("plan", profile, "-o", plan, "--machine", slow_machine, "--policy", "home", "--fast", "40%")
    assert made.status == 0 and "run --plan" in made.out, made.err
    explained = sentinel("explain", plan).out
    assert "what is made again, by" in explained and "a move would take" in explained
    refused = sentinel("run", "--no-recompute", "--plan", plan, "--", python, script)
    assert refused.status == 125 and "recomputation is off" in refused.err and not refused.out
    ran = sentinel("run", "--machine", slow_machine, "--plan", plan, "--summary", summary, "--", python, script)
    assert ran.status == 0 and ran.out == without(python, script).out, ran.err
    assert training.read_json(summary)["made_again"]


WAYS = ["in-place+dropout+batch-norm+tied+views+adam+rrelu", "autocast+random-like+dropout",
        "numpy+dlpack+address+requires-grad+threads", "fork+workers+dropout", "batch-norm-eval+two-passes+precision+backend",
        "eval-then-train", "statistics+scripted+beside", "stored", "transformed+subclass+operator",
        "accumulation"]


@pytest.mark.parametrize("ways", WAYS)
def test_whatever_a_program_does_beside(ways, replayed, python):
    """Random ops, autocast, statistics, views, updates in place; what is written past all ops; changed settings."""
    expect_replays(replayed(python, command=[SCRIPTS / "replayed.py", ways]))


@pytest.mark.parametrize("ways", ["accumulation+saved-tensor-hooks", "checkpoint"])
def test_who_keeps_less_has_the_same_bits(ways, replayed, python):
    """The program saves copies, or computes again itself, and leaves little to a plan."""
    outcome = replayed(python, command=[SCRIPTS / "replayed.py", ways])
    assert outcome.status == outcome.plain.status == 0 and outcome.out == outcome.plain.out, outcome.err


def test_what_autograd_saves_before_an_update(replayed, python):
    """The copy is a tensor of the same op, and made again with it."""
    outcome = replayed(python, command=[SCRIPTS / "replayed.py", "relu6"])
    expect_replays(outcome)
    assert any(row["steps"] > 0 and "aten::hardtanh_:" in tensor["name"]
               for row in outcome.summary["made_again"] for tensor in row["tensors"])


def test_what_is_lost_and_touched_past_all_ops(replayed, python):
    """With Python's lock held, in a parallel region, and within an op that holds the generator's lock."""
    source = SCRIPTS / "touch.c"
    library = compiled_once.once("touch.so", [source], lambda path: subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-fopenmp", "-o", path, source], check=True))
    outcome = replayed(python, command=[SCRIPTS / "replayed.py", "plain", "--touch", library])
    expect_replays(outcome)
    assert all(f"away: {way}" in outcome.err for way in ("bytes", "team", "random"))


def test_an_op_that_does_not_repeat_itself_is_not_replayed(replayed, python):
    outcome = replayed(python, SENTINEL_INJECT="trial:2:FLIP")
    expect_replays(outcome)
    trials = outcome.summary["trials"]
    (name, times), = trials["refused"].items()
    assert times == 1 < trials["ops"] and name.startswith("aten::")
    assert f"1 of {trials['ops']} ops did not give the same bytes when they were tried" in outcome.err
    assert f"{name} (1)" in outcome.err


def expect_end(outcome):
    assert outcome.status == 125
    assert "--no-recompute" in outcome.err and "aten::" in outcome.err
    assert outcome.plain.out.startswith(outcome.out), "no wrong number was printed"


def test_what_is_made_wrong_ends_the_training(replayed, python):
    expect_end(replayed(python, SENTINEL_INJECT="remake:2:FLIP"))


def test_an_op_that_cannot_run_again_ends_the_training(replayed, python):
    outcome = replayed(python, SENTINEL_INJECT="remake:2:EIO")
    expect_end(outcome)
    assert "could not be run again" in outcome.err


def test_a_recipe_that_is_left_out_ends_it_or_was_not_needed(replayed, python):
    """The memory that its tensor had may still hold what it would make."""
    outcome = replayed(python, SENTINEL_INJECT="remake:2:DROP")
    expect_end(outcome) if outcome.status else expect_replays(outcome)


def test_a_recipe_that_is_lost_is_not_needed(replayed, python):
    expect_replays(replayed(python, SENTINEL_INJECT="note:2:DROP"))
