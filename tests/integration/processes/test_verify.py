"""`sentinel verify` says of a training whether it has the same bits with Sentinel and without, and where it first has
others."""
import json
import pathlib

import pytest

SCRIPTS = pathlib.Path(__file__).parents[1] / "scripts"
SCRIPT, CASES = SCRIPTS / "verified.py", SCRIPTS / "cases"


@pytest.fixture
def verify(sentinel, python):
    """verify(planted, *options): the outcome."""
    def run(planted, *options):
        return sentinel("verify", "--fast", "40%", *options, "--", python, SCRIPT, planted)
    return run


def test_the_same_bits(verify):
    outcome = verify("none", "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out) == {"verdict": "same", "steps": 12, "tensors": 4 * 5}, "with Adam's two and its step"
    assert "39 steps" not in outcome.err, "each run ends with its last step"


@pytest.mark.parametrize("planted, tensor", [("parameter", "parameter 2.weight"), ("gradient", "gradient of 0.bias"),
                                             ("moment", "exp_avg_sq of 2.weight")])
def test_one_bit_is_found(planted, tensor, verify):
    outcome = verify(planted)
    assert outcome.status == 1, outcome.err
    assert outcome.out == f"different: first at step 8 in {tensor}\n"


def test_the_first_difference_for_programs(verify):
    said = json.loads(verify("moment", "--json").out)
    assert said["verdict"] == "different"
    assert said["first"] == {"step": 8, "tensor": "exp_avg_sq of 2.weight", "process": "rank0"}, said


def test_sharded_parameters(sentinel, python):
    """FSDP2: of each rank its own parts."""
    outcome = sentinel("verify", "--steps", "8", "--fast", "72M", "--json", "--", python, "-m", "torch.distributed.run",
                       "--standalone", "--nproc-per-node", "2", CASES / "sharded_ranks.py", timeout=300)
    assert outcome.status == 0, outcome.err + outcome.out
    assert json.loads(outcome.out) == {"verdict": "same", "steps": 8, "tensors": 2 * 5 * 12}


@pytest.mark.parametrize("how", ["random", "threads"])
def test_what_differs_from_itself_is_not_compared(how, verify):
    outcome = verify(how)
    assert outcome.status == 3 and outcome.out.startswith("not comparable: the program differs from itself"), outcome.err


def test_too_few_steps_verify_nothing(verify):
    outcome = verify("none", "--steps", "2")
    assert outcome.status == 3 and "--steps 2" in outcome.out, outcome.err


def test_a_program_that_fails(sentinel, python):
    outcome = sentinel("verify", "--fast", "40%", "--", python, "-c", "raise SystemExit(7)")
    assert outcome.status == 3 and "status 7 without Sentinel" in outcome.out


def test_no_step(sentinel, python):
    outcome = sentinel("verify", "--fast", "40%", "--", python, "-c", "import torch")
    assert outcome.status == 3 and "no step of a PyTorch optimizer" in outcome.out
