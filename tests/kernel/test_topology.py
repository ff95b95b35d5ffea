"""What the guest's nodes are to `sentinel doctor` and `sentinel bench`."""

import json
import re

from lab import BUILD, passed

SENTINEL = BUILD / "bin/sentinel"

# The persistent memory is a node when the command starts. Its blocks are taken offline and the device is
# given back to the driver that maps it into programs: as it is before `daxctl reconfigure-device`.
NO_NODE_YET = """
set -e
for block in /sys/devices/system/node/node1/memory*/state; do echo offline >$block; done
echo dax0.0 >/sys/bus/dax/drivers/kmem/unbind
echo dax0.0 >/sys/bus/dax/drivers/kmem/remove_id
echo dax0.0 >/sys/bus/dax/drivers/device_dax/bind
exec "$0" doctor --json
"""


def memory(output):
    """Of `doctor --json`: the findings about memory, by name."""
    return {one["name"]: one for one in json.loads(output)["memory"]}


def test_dram_nodes_with_the_firmwares_figures(lab):
    output = passed(lab.run(SENTINEL, "doctor", "--json", options=["--shape", "dram+dram"]))
    found = memory(output)
    assert found["NUMA nodes"]["available"] and "fast=node0,slow=node1" in found["NUMA nodes"]["detail"]
    fast, slow = found["node0"]["detail"], found["node1"]["detail"]
    assert "2 processors" in fast and "no processors" in slow
    assert "107.4 GB/s read and 107.4 GB/s written (HMAT)" in fast, fast   # 100 GiB/s to QEMU
    assert "80 ns (HMAT)" in fast and "300 ns (HMAT)" in slow
    assert "21.5 GB/s read" in slow
    assert "distances 10 30" in fast and "distances 30 10" in slow


def test_persistent_memory_is_a_node_of_a_slower_tier(lab):
    found = memory(passed(lab.run(SENTINEL, "doctor", "--json", options=["--shape", "dram+pmem"])))
    tiers = [int(re.search(r"memory tier (\d+)", found[node]["detail"]).group(1)) for node in ("node0", "node1")]
    assert tiers[0] < tiers[1]
    assert "no processors" in found["node1"]["detail"]
    assert found["dax0.0"]["available"] and "is memory of node1" in found["dax0.0"]["detail"]


def test_a_device_that_could_be_a_node_comes_with_the_command(lab):
    output = passed(lab.run("bash", "-c", NO_NODE_YET, SENTINEL, options=["--shape", "dram+pmem"]))
    found = memory(output)
    assert not found["NUMA nodes"]["available"]
    device = found["dax0.0"]
    assert not device["available"] and "could be memory of node1" in device["detail"]
    assert device["remedy"] == "daxctl reconfigure-device --mode=system-ram dax0.0"
