"""Real trainings between two nodes in the guest: counted in the kernel, moved by move_pages."""

import json

import pytest

from lab import BUILD, ROOT, passed

WORKLOADS = {
    "resnet": ("resnet_cifar.py", "--depth", "20", "--width", "16", "--batch", "4"),
    "transformer": ("bert_mlm.py", "--layers", "6", "--hidden", "64", "--heads", "2", "--seq", "32",
                    "--batch", "4", "--vocab", "500"),
}
STEPS = 8
TRAIN = """
set -e
python=/usr/bin/python3 out=$LAB_OUT
$python "$@" --json $out/plain.json >/dev/null
"$SENTINEL_BUILD"/bin/sentinel run --tiers fast=node0,slow=node1 --granule 4K --late wait --inspect --watch \\
  --count kernel --fast 20% --summary $out/summary.json -o $out/profile.sentinel -- \\
  $python "$@" --json $out/sentinel.json >/dev/null
"""


@pytest.mark.parametrize("name", WORKLOADS)
def test_training_between_nodes(lab, tell, name):
    script, *arguments = WORKLOADS[name]
    command = [ROOT / "tests/workloads" / script, *arguments, "--steps", STEPS, "--threads", 2]
    passed(lab.run("bash", "-c", TRAIN, "train", *command, SENTINEL_BUILD=str(BUILD)))
    read = {file: json.loads((lab.folder / f"{file}.json").read_text())
            for file in ("plain", "sentinel", "summary")}
    plain, sentinel, summary = read.values()

    # To the last bit, in the guest.
    for key in ("params_sha256", "optimizer_sha256"):
        assert plain[key] == sentinel[key]
    assert [step["loss"] for step in plain["steps"]] == [step["loss"] for step in sentinel["steps"]]

    # Where the bytes lie (numa_maps): in the slow node before there is a plan, within the limit after.
    before = [step for step in summary["steps"] if step["phase"] in ("warmup", "profile")]
    steady = [step for step in summary["steps"] if step["phase"] == "steady"]
    assert before and all(step["nodes"].get("node0", 0) == 0 for step in before)
    assert len(steady) >= 3
    limit = summary["fast_limit_bytes"]
    assert all(0 < step["nodes"]["node0"] <= limit for step in steady)
    assert summary["peak_fast_bytes"] <= limit

    # What a step brings in goes out again, give or take what stays at its end.
    for step in steady[1:]:
        assert step["promoted_bytes"] > 0
        assert abs(step["promoted_bytes"] - step["demoted_bytes"]) <= limit
        assert step["fast_access_share"] >= 0.95
    watched = [step["openings"] for step in steady if "openings" in step]
    to = {node: sum(step.get(node, 0) for step in watched) for node in ("node0", "node1")}
    assert to["node0"] / (to["node0"] + to["node1"]) >= 0.95

    report = passed(lab.run(BUILD / "bin/sentinel", "report", lab.folder / "profile.sentinel"))
    assert "kernel" in next(line for line in report.splitlines() if line.lstrip().startswith("counts"))
    last = steady[-1]
    tell(f"{name}: limit {limit / 2**20:.2f} MiB of {summary['peak_unlimited_bytes'] / 2**20:.1f}; a step "
         f"promotes {last['promoted_bytes'] / 2**20:.1f} and demotes {last['demoted_bytes'] / 2**20:.1f} MiB; "
         f"{last['fast_access_share']:.2%} of accesses to node0 by the profile's counts, "
         f"{to['node0'] / (to['node0'] + to['node1']):.2%} by the kernel's at their time")
