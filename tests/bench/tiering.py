"""Sentinel beside Linux's own tiering on the same training, in a machine with a fast and a slow NUMA node.

Both train with the same allocator, model and data, in a process that has locked what it has in memory after
its imports, so that only tensors are moved. Sentinel holds its tensors in a share of node0; Linux
(numa_balancing = 2, demotion) gets a node0 in which just as much is free, above the watermark below
which allocations turn to another node: the rest is locked away. Where accesses go is counted by the same counter for both: the
kernel's access source, by the node in which each page lies when it is opened (--watch).

Needs root, two nodes of which node1 is in a slower memory tier, and /dev/sentinel:

  bash kernel/lab.sh --shape dram+pmem --memory 2G+4G -- /usr/bin/python3 tests/bench/tiering.py
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = 4096


def vmstat():
    return {k: int(v) for k, v in (line.split() for line in pathlib.Path("/proc/vmstat").read_text().splitlines())}


def node_free(node):
    text = pathlib.Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    return int(re.search(r"MemFree:\s+(\d+) kB", text).group(1)) * 1024


def low_watermark(node):
    """Bytes free on a node, all zones, below which allocations turn to another."""
    zones = pathlib.Path("/proc/zoneinfo").read_text().split("Node ")
    return PAGE * sum(int(value) for zone in zones if zone.startswith(f"{node},")
                      for value in re.findall(r"^\s+low\s+(\d+)", zone, re.M))


def lock_what_is_there(libc):
    """All but the tensors' arena, which is the one mapping of many GiB."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(at, 16) for at in line.split()[0].split("-"))
        if end - begin < 4 << 30 and " r" in line and "[v" not in line:
            libc.mlock(ctypes.c_void_p(begin), ctypes.c_ulong(end - begin))


def lock_away(libc, leave):
    """Memory of node0, so that only `leave` bytes stay free there. Returns what keeps it."""
    size = max(0, node_free(0) - leave) // PAGE * PAGE
    if size == 0:
        return None
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    node0 = ctypes.c_ulong(1)
    mbind, bind = 237, 2
    if libc.syscall(mbind, at, ctypes.c_ulong(size), bind, ctypes.byref(node0), ctypes.c_ulong(64), 0):
        raise OSError(ctypes.get_errno(), "mbind")
    if libc.mlock(at, ctypes.c_ulong(size)):
        raise OSError(ctypes.get_errno(), "mlock")
    return memory


def be_trained(tensor_bytes, script, *arguments):
    """In the training process: imports, locks, goes on as the script. 0 bytes: node0 as it is."""
    import torch  # noqa: F401, with what it brings
    import numpy, sklearn.datasets  # noqa: F401
    libc = ctypes.CDLL(None, use_errno=True)
    lock_what_is_there(libc)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
    kept = lock_away(libc, int(tensor_bytes) + low_watermark(0)) if int(tensor_bytes) else None
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
    del kept


def train(folder, name, tensor_bytes, options, command):
    files = {kind: folder / f"{name}-{kind}.json" for kind in ("summary", "record")}
    before = vmstat()
    subprocess.run([ROOT / "build/bin/sentinel", "run", "--watch", "--summary", files["summary"], *options,
                    "--", "/usr/bin/python3", __file__, "be-trained", str(tensor_bytes), *command,
                    "--json", files["record"]], check=True, stdout=subprocess.DEVNULL)
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
    parser.add_argument("command", nargs="*", help="the training's script and arguments; a ResNet-20 by default")
    args = parser.parse_args()
    command = args.command or [str(ROOT / "tests/workloads/resnet_cifar.py"), "--depth", "20", "--width", "16",
                               "--batch", "4", "--threads", "2"]
    command += ["--steps", str(args.steps)]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    folder = pathlib.Path(tempfile.mkdtemp())

    sentinel = train(folder, "sentinel", 0, ["--tiers", "fast=node0,slow=node1", "--granule", "4K", "--late", "wait",
                                          "--fast", f"{args.percent}%", "--count", "kernel"], command)
    peak = sentinel["summary"]["peak_unlimited_bytes"]
    tensors = peak * args.percent // 100
    for file, value in (("/proc/sys/kernel/numa_balancing", "2"),
                        ("/sys/kernel/mm/numa/demotion_enabled", "true")):
        pathlib.Path(file).write_text(value)
    linux = train(folder, "linux", tensors, [], command)
    pathlib.Path("/proc/sys/kernel/numa_balancing").write_text("0")

    same = all(sentinel["record"][key] == linux["record"][key] for key in ("params_sha256", "optimizer_sha256"))
    table = {"sentinel": figures(sentinel, args.last), "linux": figures(linux, args.last)}
    steps = len(linux["summary"]["steps"])
    table["linux"]["promoted_pages"] = linux["moved"].get("pgpromote_success", 0) // steps
    table["linux"]["demoted_pages"] = sum(v for k, v in linux["moved"].items() if "demote" in k) // steps
    print(f"{peak / 2**20:.1f} MiB of tensors, {args.percent} % of them in fast memory; "
          f"the same parameters: {same}")
    print(f"{'':10}{'share of accesses':>18}{'to node0':>9}{'accesses':>10}{'promoted':>10}{'demoted':>9}  pages a step")
    for name, row in table.items():
        print(f"{name:10}{'':18}{row['share']:9.2%}{row['openings']:10}{row['promoted_pages']:10}{row['demoted_pages']:9}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"percent": args.percent, "same_parameters": same, **table}))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(be_trained(*sys.argv[2:]) if sys.argv[1:2] == ["be-trained"] else main())
