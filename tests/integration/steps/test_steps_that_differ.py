"""Steps that are not like the others: the numbers stay the plain training's, the budget is held."""
import pytest

RESNET = ("resnet_cifar.py", "--depth", "20", "--batch", "160")
LSTM = ("lstm_lm.py", "--hidden", "512", "--batch", "20", "--vocab", "8000")

DIFFERENT = {
    "smaller-last-batch": (*RESNET, "--images", "400", "--last-batch", "--steps", "12"),
    "evaluation": (*RESNET, "--eval-every", "2", "--steps", "9"),
    "accumulation": (*RESNET, "--accumulate", "2", "--steps", "7"),
    "varying-sequence": (*LSTM, "--varying-seq", "--steps", "16"),
    "exception": (*RESNET, "--raise-at", "6", "--steps", "9"),
    "exception-while-profiling": (*RESNET, "--raise-at", "3", "--steps", "9"),
    "subprocess": (*RESNET, "--subprocess-at", "6", "--steps", "8"),
    # Its weights exceed the budget: the child needs some that are away.
    "fork": (*LSTM, "--fork-at", "6", "--steps", "8"),
    "fork-while-profiling": (*LSTM, "--fork-at", "3", "--steps", "9"),
    "workers-fork": (*RESNET, "--images", "480", "--workers", "2", "--steps", "8"),
    "workers-spawn": (*RESNET, "--images", "800", "--workers", "1", "--worker-start", "spawn", "--steps", "7"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_at_a_fifth(name, plain, under, expect_same):
    script, *flags = DIFFERENT[name]
    outcome = under("20%", script, *flags)
    expect_same(plain(script, *flags), outcome)
    assert outcome.summary["fast_limit_bytes"] > 0
    assert outcome.phases()[-1] == "steady"


def test_what_is_named_while_profiling_is(under):
    """The cases above that name step 3 hit the profiling step, those that name step 6 a later one."""
    assert under("20%", *RESNET, "--steps", "7").phases()[3:] == ["profile"] + ["steady"] * 3


def test_what_is_as_profiled_goes_by_the_plan(plain, under, profile_of, expect_same):
    """Each epoch's first step, of which the stored profile is, has a few ops that the others have not. Those
    others run by its plan all the same, before they are known: with half of the faults that they have by demand."""
    script, *flags = *RESNET, "--images", "480", "--steps", "7"  # epochs of three steps
    planned = under("20%", script, *flags, options=("--profile", profile_of(script, *flags)))
    expect_same(plain(script, *flags), planned)
    by_demand = under(planned.summary["fast_limit_bytes"], script, *flags)
    expect_same(plain(script, *flags), by_demand)
    assert by_demand.phases()[1] == "warmup"
    faults = by_demand.summary["steps"][1]["demand_faults"]
    assert faults > 100
    assert planned.phases()[3:5] == ["warmup", "steady"]  # the profile's step is seen, then one of the others
    assert planned.summary["steps"][4]["demand_faults"] < 0.7 * faults


def test_checkpoint_and_resume(plain, under, expect_same, tmp_path):
    """Saved under Sentinel in mid-run, resumed under Sentinel: each as the plain training that was
    never interrupted."""
    script, *flags = *RESNET, "--steps", "12"
    whole = plain(script, *flags)
    checkpoint = tmp_path / "checkpoint.pt"
    saving = under("20%", script, *flags, "--checkpoint-at", "6", "--checkpoint-to", checkpoint)
    expect_same(whole, saving)
    resumed = under("20%", script, *flags, "--resume", checkpoint)
    expect_same(whole, resumed, "--tail")
    assert [number for number, _ in resumed.losses()] == list(range(6, 12))


def test_new_signatures_are_profiled_again(under, torch1):
    """Four sequence lengths are four kinds of step where each token has ops of its own, as in PyTorch 1.13: each kind
    gets a plan, one kind only one."""
    script, *flags = *LSTM, "--steps", "24"
    assert under("20%", script, *flags, "--varying-seq", interpreter=torch1).summary["plans"] == 4
    assert under("20%", script, *flags[:-1], "8", interpreter=torch1).summary["plans"] == 1
