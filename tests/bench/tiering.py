"""Sentinel beside Linux's own tiering on the same training, in a machine with a fast and a slow NUMA node.

Both train with the same allocator, model and data. Sentinel holds its tensors in --fast of node0; Linux
(numa_balancing = 2, demotion) gets a node0 in which, beside what the process needs for other things, just
as much is free: the rest is locked away. Where accesses go is counted by the same counter for both: the
kernel's access source, by the node in which each page lies when it is opened (--watch).

Needs root, two nodes of which node1 is in a slower memory tier, and /dev/sentinel:

  bash kernel/lab.sh --shape dram+pmem --memory 2G+4G -- /usr/bin/python3 tests/bench/tiering.py
"""

import argparse
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import ctypes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = 4096


def vmstat():
    return {k: int(v) for k, v in (line.split() for line in pathlib.Path("/proc/vmstat").read_text().splitlines())}


def node_free(node):
    text = pathlib.Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    return int(re.search(r"MemFree:\s+(\d+) kB", text).group(1)) * 1024


def high_watermark(node):
    """Bytes that the kernel keeps free on a node before demotion rests, all zones."""
    zones = pathlib.Path("/proc/zoneinfo").read_text().split("Node ")
    return PAGE * sum(int(value) for zone in zones if zone.startswith(f"{node},")
                      for value in re.findall(r"^\s+high\s+(\d+)", zone, re.M))


class Ballast:
    """Locked memory on node0, so that only `leave` bytes stay free there."""

    def __init__(self, leave):
        libc = ctypes.CDLL(None, use_errno=True)
        size = max(0, node_free(0) - leave) // PAGE * PAGE
        self.bytes = size
        if size == 0:
            return
        self.memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.memory)))
        nodes = ctypes.c_ulong(1)
        if libc.syscall(237, at, ctypes.c_ulong(size), 2, ctypes.byref(nodes), ctypes.c_ulong(64), 0):
            raise OSError(ctypes.get_errno(), "mbind")
        if libc.mlock(at, ctypes.c_ulong(size)):
            raise OSError(ctypes.get_errno(), "mlock")


def train(folder, name, options, command):
    files = {kind: folder / f"{name}-{kind}.json" for kind in ("summary", "record")}
    before = vmstat()
    subprocess.run([ROOT / "build/bin/sentinel", "run", "--watch", "--summary", files["summary"], *options,
                    "--", *command, "--json", files["record"]], check=True, stdout=subprocess.DEVNULL)
    after = vmstat()
    result = {kind: json.loads(file.read_text()) for kind, file in files.items()}
    result["moved"] = {key: after[key] - before[key]
                       for key in ("pgpromote_success", "pgdemote_kswapd", "pgdemote_direct") if key in after}
    return result


def figures(result, last):
    """Of the last steps, in which both have settled."""
    rows = [row for row in result["summary"]["steps"] if "openings" in row][-last:]
    sums = {}
    for row in rows:
        for node, count in row["openings"].items():
            sums[node] = sums.get(node, 0) + count
    placed = sum(count for node, count in sums.items() if node != "unplaced")
    return {"share": sums.get("node0", 0) / max(1, placed), "openings": placed // max(1, len(rows)),
            "first_touches": sums.get("unplaced", 0) // max(1, len(rows)),
            "promoted_pages": sum(row["promoted_bytes"] for row in rows) // PAGE // max(1, len(rows)),
            "demoted_pages": sum(row["demoted_bytes"] for row in rows) // PAGE // max(1, len(rows)),
            "ms": sorted(row["ms"] for row in rows)[len(rows) // 2] if rows else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--percent", type=int, default=20)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--last", type=int, default=5, help="steps that are compared")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("command", nargs="*", help="the training; a ResNet-20 by default")
    args = parser.parse_args()
    command = args.command or ["/usr/bin/python3", str(ROOT / "tests/workloads/resnet_cifar.py"), "--depth", "20",
                               "--width", "16", "--batch", "4", "--threads", "2"]
    command += ["--steps", str(args.steps)]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    folder = pathlib.Path(tempfile.mkdtemp())

    sentinel = train(folder, "sentinel", ["--tiers", "fast=node0,slow=node1", "--granule", "4K", "--late", "wait",
                                          "--fast", f"{args.percent}%", "--count", "kernel"], command)
    peak = sentinel["summary"]["peak_unlimited_bytes"]
    tensors = peak * args.percent // 100
    others = sentinel["record"]["peak_rss_kb"] * 1024 - peak
    for file, value in (("/proc/sys/kernel/numa_balancing", "2"),
                        ("/sys/kernel/mm/numa/demotion_enabled", "true")):
        pathlib.Path(file).write_text(value)
    # What a process needs beside its tensors is in the page cache by now, apart from its own memory.
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
    ballast = Ballast(others + tensors + high_watermark(0))
    linux = train(folder, "linux", [], command)
    pathlib.Path("/proc/sys/kernel/numa_balancing").write_text("0")

    same = all(sentinel["record"][key] == linux["record"][key] for key in ("params_sha256", "optimizer_sha256"))
    table = {"sentinel": figures(sentinel, args.last), "linux": figures(linux, args.last)}
    steps = len(linux["summary"]["steps"])
    table["linux"]["promoted_pages"] = linux["moved"].get("pgpromote_success", 0) // steps
    table["linux"]["demoted_pages"] = sum(v for k, v in linux["moved"].items() if "demote" in k) // steps
    print(f"{peak / 2**20:.1f} MiB of tensors, {args.percent} % of them in fast memory; "
          f"{ballast.bytes / 2**20:.0f} MiB locked away for Linux; the same parameters: {same}")
    print(f"{'':10}{'share of accesses':>18}{'to node0':>9}{'accesses':>10}{'promoted':>10}{'demoted':>9}  pages a step")
    for name, row in table.items():
        print(f"{name:10}{'':18}{row['share']:9.2%}{row['openings']:10}{row['promoted_pages']:10}{row['demoted_pages']:9}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"percent": args.percent, "same_parameters": same, **table}))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
