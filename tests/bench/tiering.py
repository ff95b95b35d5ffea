"""Sentinel beside Linux's own tiering on the same training, in a machine with a fast and a slow NUMA node.

Both train with the same allocator, model and data, on pages of 4 KiB, in a process that has locked what
is no tensor, so that only tensors are moved. Sentinel holds its tensors in a share of node0. Linux
(numa_balancing = 2, demotion) gets a node0 in which just as much can still be allocated: the rest is
locked away, and the watermarks are as low as they go.

Weighted interleave (Linux 6.9) is the third: pages go to the nodes by turns, as many to node0 as its share, and stay.

Where accesses go is counted by the same counter for both: the kernel's access source, by the node in which
each page lies when it is opened, in every Nth step (--watch). In between nothing is armed, because NUMA
balancing passes over armed pages: it works undisturbed until it has settled, and in all steps but the
counted ones after that. Figures are of the last steps of both, counted or not.

What Linux moves is read from /proc/vmstat, which counts for the whole machine: nothing else of it moves.
Where tensors lie is the process's own numa_maps.

Needs root, two nodes of which node1 is in a slower memory tier, and /dev/sentinel:

  bash kernel/lab.sh --shape dram+pmem --memory 2G+4G -- /usr/bin/python3 tests/bench/tiering.py
"""

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import pathlib
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
PAGE = 4096
RESNET = [ROOT / "tests/workloads/resnet_cifar.py", "--depth", "20", "--width", "16", "--batch", "16"]

# As little as can be is kept free of tensors beyond what is locked away, for Linux has to choose.
SCARCE = {"/proc/sys/vm/min_free_kbytes": "1024", "/proc/sys/vm/watermark_scale_factor": "1",
          "/proc/sys/vm/watermark_boost_factor": "0", "/proc/sys/vm/percpu_pagelist_high_fraction": "100000",
          "/sys/kernel/mm/transparent_hugepage/enabled": "never"}
SCAN = "/sys/kernel/debug/sched/numa_balancing"
# Steps are few: Linux looks at once, and often.
TIERING = {f"{SCAN}/scan_delay_ms": "1", f"{SCAN}/scan_period_min_ms": "100",
           "/proc/sys/kernel/numa_balancing": "2", "/sys/kernel/mm/numa/demotion_enabled": "true"}
WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave"
MPOL_WEIGHTED_INTERLEAVE = 6
LINUX = {"promoted": ["pgpromote_success"], "demoted": ["pgdemote_kswapd", "pgdemote_direct"],
         "hint_faults": ["numa_hint_faults"]}


def settle(values):
    for file, value in values.items():
        pathlib.Path(file).write_text(value)


def vmstat():
    counts = dict(line.split() for line in pathlib.Path("/proc/vmstat").read_text().splitlines())
    return {name: sum(int(counts.get(key, 0)) for key in keys) for name, keys in LINUX.items()}


def room(node):
    """Bytes that movable pages can still take on a node before allocations turn to another."""
    pages = 0
    for zone in pathlib.Path("/proc/zoneinfo").read_text().split("Node ")[1:]:
        value = {key: int(number) for key, number in re.findall(r"^\s+(?:pages )?(free|low)\s+(\d+)", zone, re.M)}
        kept = re.search(r"protection: \((.*)\)", zone)
        if zone.startswith(f"{node},") and "low" in value:
            pages += max(0, value["free"] - value["low"] - int(kept.group(1).split(",")[-1]))
    return pages * PAGE


def lock_what_is_there(libc):
    """All but the tensors' arena, which is the one mapping of many GiB, now and later. Nor where frames are made, which
    no child has (`dc`): from locked memory they cannot be moved."""
    smaps = pathlib.Path("/proc/self/smaps").read_text()
    for begin, end, name, flags in re.findall(r"^(\w+)-(\w+) r(.*)\n(?:[A-Z].*\n)*?VmFlags:(.*)$", smaps, re.M):
        begin, end = int(begin, 16), int(end, 16)
        if end - begin < 4 << 30 and "[v" not in name and "dc" not in flags.split():
            libc.mlock(ctypes.c_void_p(begin), ctypes.c_ulong(end - begin))
    future_on_fault = 2 | 4
    if libc.mlockall(future_on_fault):
        raise OSError(ctypes.get_errno(), "mlockall")


def lock_away(libc, leave):
    """Memory of node0, so that only `leave` bytes can be had there, now and after what the kernel then gives up of its
    caches. Returns what keeps it."""
    kept = []
    for _ in range(20):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
        size = (room(0) - leave) // PAGE * PAGE
        if size > 0:
            kept.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(kept[-1])))
            node0 = ctypes.c_ulong(1)
            mbind, bind = 237, 2
            if libc.syscall(mbind, at, ctypes.c_ulong(size), bind, ctypes.byref(node0), ctypes.c_ulong(64), 0):
                raise OSError(ctypes.get_errno(), "mbind")
            if libc.mlock(at, ctypes.c_ulong(size)):
                raise OSError(ctypes.get_errno(), "mlock")
        time.sleep(0.1)
    return kept


def note_each_step(notes):
    """/proc/vmstat after each of the workload's steps."""
    import common
    step = common.Run.step

    @contextlib.contextmanager
    def noted(self, number):
        with step(self, number) as report:
            yield report
        notes.append(vmstat())
    common.Run.step = noted


def interleave():
    """From now on pages of this process go to both nodes by their weights. So it is with what it starts: Sentinel's own
    threads make the pages of tensors."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_mempolicy, both = 238, ctypes.c_ulong(3)
    if libc.syscall(set_mempolicy, MPOL_WEIGHTED_INTERLEAVE, ctypes.byref(both), ctypes.c_ulong(64)):
        raise OSError(ctypes.get_errno(), "set_mempolicy")


def be_trained(notes_file, tensor_bytes, script, *arguments):
    """In the training process: imports, locks, goes on as the script. 0 bytes: node0 as it is."""
    import torch  # noqa: F401, with what it brings
    import numpy  # noqa: F401
    import sklearn.datasets  # noqa: F401
    libc = ctypes.CDLL(None, use_errno=True)
    lock_what_is_there(libc)
    kept = lock_away(libc, int(tensor_bytes)) if int(tensor_bytes) else None
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    notes = []
    note_each_step(notes)
    runpy.run_path(script, run_name="__main__")
    pathlib.Path(notes_file).write_text(json.dumps(notes))
    del kept


def train(folder, name, tensor_bytes, options, command, first=None):
    files = {kind: folder / f"{name}-{kind}.json" for kind in ("summary", "record", "notes")}
    subprocess.run([BUILD / "bin/sentinel", "run", "--inspect", "--summary", files["summary"], *options,
                    "--", "/usr/bin/python3", __file__, "be-trained", files["notes"], str(tensor_bytes),
                    *command, "--json", files["record"]], check=True, stdout=subprocess.DEVNULL,
                   preexec_fn=first)
    return {kind: json.loads(file.read_text()) for kind, file in files.items()}


def figures(result, last):
    """Of the last steps; pages are pages a step."""
    rows, notes = result["summary"]["steps"], result["notes"]
    rows = rows[:len(notes)][-last:]
    counted = [row["openings"] for row in rows if "openings" in row]
    to = {node: sum(row.get(node, 0) for row in counted) for node in ("node0", "node1", "unplaced")}
    moved = {name: (notes[-1][name] - notes[-1 - last][name]) / last for name in notes[-1]}
    plain = [row["ms"] for row in rows if "openings" not in row]
    return {"share": to["node0"] / max(1, to["node0"] + to["node1"]),
            "openings": (to["node0"] + to["node1"]) // max(1, len(counted)),
            "first_touches": to["unplaced"] // max(1, len(counted)),
            "counted_steps": len(counted),
            "node0_bytes": statistics.median(row["nodes"].get("node0", 0) for row in rows),
            "node1_bytes": statistics.median(row["nodes"].get("node1", 0) for row in rows),
            "promoted_pages": sum(row["promoted_bytes"] for row in rows) // PAGE // last + moved["promoted"],
            "demoted_pages": sum(row["demoted_bytes"] for row in rows) // PAGE // last + moved["demoted"],
            "hint_faults": moved["hint_faults"],
            "hint_faults_before": notes[-1 - last]["hint_faults"] - notes[0]["hint_faults"],
            "promoted_before": notes[-1 - last]["promoted"] - notes[0]["promoted"],
            "ms": statistics.median(plain) if plain else None}


COLUMNS = [("share of accesses", lambda r: f"{r['share']:.2%}"),
           ("accesses", lambda r: f"{r['openings']}"),
           ("first touches", lambda r: f"{r['first_touches']}"),
           ("promoted", lambda r: f"{r['promoted_pages']:.0f}"),
           ("demoted", lambda r: f"{r['demoted_pages']:.0f}"),
           ("hint faults", lambda r: f"{r['hint_faults']:.0f}"),
           ("MiB in node0", lambda r: f"{r['node0_bytes'] / 2**20:.1f}"),
           ("in node1", lambda r: f"{r['node1_bytes'] / 2**20:.1f}"),
           ("ms", lambda r: f"{r['ms']:.0f}")]


def show(table):
    print("".join(f"{head:>{len(head) + 2}}" for head in ["contender", *(head for head, _ in COLUMNS)]))
    for name, row in table.items():
        print(f"{name:>11}" + "".join(f"{text(row):>{len(head) + 2}}" for head, text in COLUMNS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--percent", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--last", type=int, default=8, help="steps that are compared")
    parser.add_argument("--watch", type=int, default=4, help="of these, count accesses in every Nth")
    parser.add_argument("--spare", type=float, default=0,
                        help="MiB of node0 that Linux gets beyond the share, for what is no tensor")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("command", nargs=argparse.REMAINDER,
                        help="the training's script and arguments; a ResNet-20 by default")
    args = parser.parse_args()
    command = [str(word) for word in args.command if word != "--"] or [str(word) for word in RESNET]
    command += ["--threads", "2", "--steps", str(args.steps)]
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    folder = pathlib.Path(tempfile.mkdtemp())

    settle(SCARCE)
    counting = ["--watch", str(args.watch)]
    sentinel = train(folder, "sentinel", 0,
                     ["--tiers", "fast=node0,slow=node1", "--granule", "4K", "--late", "wait",
                      "--fast", f"{args.percent}%", "--count", "kernel", *counting], command)
    peak, limit = (sentinel["summary"][key] for key in ("peak_unlimited_bytes", "fast_limit_bytes"))
    settle(TIERING)
    linux = train(folder, "linux", limit + int(args.spare * 2**20), ["--count", "ops", *counting], command)
    settle({"/proc/sys/kernel/numa_balancing": "0"})
    results = {"Sentinel": sentinel, "Linux": linux}
    if os.path.exists(WEIGHTS):
        settle({f"{WEIGHTS}/node0": str(args.percent), f"{WEIGHTS}/node1": str(100 - args.percent)})
        results["interleaved"] = train(folder, "interleaved", 0, ["--count", "ops", *counting], command,
                                       interleave)
    else:
        print("no weighted interleave: this kernel is older than 6.9")

    same = all(result["record"][key] == sentinel["record"][key]
               for result in results.values() for key in ("params_sha256", "optimizer_sha256"))
    table = {name: figures(result, args.last) for name, result in results.items()}
    print(f"{peak / 2**20:.1f} MiB of tensors, {limit / 2**20:.1f} of them in fast memory; the last {args.last} of "
          f"{args.steps} steps, accesses counted in {table['Linux']['counted_steps']} of them; the same "
          f"parameters: {same}")
    print("pages a step; the share is of those accesses that were to node0")
    show(table)
    print(f"before these steps Linux had {table['Linux']['hint_faults_before']} hint faults and promoted "
          f"{table['Linux']['promoted_before']} pages")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"percent": args.percent, "peak_bytes": peak,
                                                       "limit_bytes": limit, "same_parameters": same, **table}))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(be_trained(*sys.argv[2:]) if sys.argv[1:2] == ["be-trained"] else main())
