"""Sentinel beside Linux's own tiering, small enough for the suite: tests/bench/tiering.py has the figures."""

import json

from lab import BUILD, ROOT, passed


def test_beside_linux_tiering(lab, tell):
    # Where the guest is emulated, a step takes seconds: narrow layers. In fewer images Linux would have room for all.
    output = passed(lab.run(
        "/usr/bin/python3", ROOT / "tests/bench/tiering.py", "--steps", 14, "--last", 6, "--watch", 3,
        "--json", lab.folder / "tiering.json", "--", ROOT / "tests/workloads/resnet_cifar.py",
        "--depth", "20", "--width", "8", "--batch", "4",
        options=["--shape", "dram+pmem", "--memory", "2G+4G"], timeout=1500, SENTINEL_BUILD=str(BUILD)))
    for line in output.strip().splitlines():
        tell(line)
    result = json.loads((lab.folder / "tiering.json").read_text())
    sentinel, linux = result["Sentinel"], result["Linux"]
    assert result["same_parameters"]
    assert sentinel["share"] >= 0.95
    assert 0 < sentinel["node0_bytes"] <= result["limit_bytes"]
    assert sentinel["promoted_pages"] > 0 and sentinel["demoted_pages"] > 0
    # Linux was not kept from its work: tensors lay in both nodes, and it was told of accesses to the slow one.
    assert linux["node0_bytes"] > 0 and linux["node1_bytes"] > 0
    assert linux["hint_faults_before"] + linux["hint_faults"] > 0
    assert linux["counted_steps"] == sentinel["counted_steps"] > 0
