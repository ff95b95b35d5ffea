#!/usr/bin/env python3
"""Training in a share of the memory: Sentinel beside what people do today, on this machine, in one run.

Every contender trains the same models for the same steps; those with a share run in a memory cgroup
that holds the process with steps of the smallest batch, 16 MiB, and that share of the peak of live tensors. All
contenders of a round run one after the other, then all again; medians of the settled steps of all
rounds. The bound of a row is what sentinel simulate proves for its budget on this machine.

    live.py [--models ResNet-110,LSTM] [--shares 20,40,60] [--rounds 3] [--json FILE] [--picture FILE]
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

import fio
from contenders import MODELS, ROOT, WORKLOADS, Absent, command, contenders, environment
from limits import Step

sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "bench")]
import cgroup  # noqa: E402
import swap  # noqa: E402

ABSENT = 77  # a workload's status where a library that it needs is missing
PAGE = os.sysconf("SC_PAGE_SIZE")
COMPARED = 10  # steps in which Sentinel follows two plans to choose one
SPARE = 16 << 20  # in every limit, for what memory is managed with: page tables, plans, queues


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--shares", default="20,40,60", help="budgets, per cent of the peak of live tensors")
    parser.add_argument("--only", default="",
                        help="contenders whose label contains one of these, or is it (=Sentinel), by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of every training, whoever trains")
    parser.add_argument("--limit", type=int, default=900, help="seconds a training may take")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--disk", type=pathlib.Path, default=pathlib.Path(os.environ.get("SENTINEL_DIR", "/var/tmp")),
                        help="folder of the slow tier, of the offload's files and of the swap file")
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured here")
    parser.add_argument("--picture", type=pathlib.Path, help="an .svg or .png (needs matplotlib)")
    parsed = parser.parse_args()
    parsed.models = parsed.models.split(",")
    if unknown := set(parsed.models) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    try:
        parsed.shares = [int(share) for share in parsed.shares.split(",")]
    except ValueError:
        parser.error("--shares: whole numbers, as 20,40,60")
    if not all(0 < share <= 100 for share in parsed.shares):
        parser.error("--shares: from 1 to 100")
    parsed.only = [part for part in parsed.only.split(",") if part]
    return parsed


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- what is measured once


def bandwidth(args):
    """The disk's, bytes a second, as `sentinel bench` measures it."""
    figures = subprocess.run([args.build / "bin" / "sentinel", "bench", "--tiers", "--json", "--slow", args.disk],
                             check=True, capture_output=True, text=True)
    return json.loads(figures.stdout)["tiers"][-1]


def profiled(model, args, folder):
    """Records a step of the model; the step, and where the profile lies."""
    script, *arguments = MODELS[model]
    profile = folder / "step.sentinel"
    train = [sys.executable, str(WORKLOADS / script), *arguments, "--steps", "5"]
    done = subprocess.run([args.build / "bin" / "sentinel", "record", "--quiet", "-o", profile, "--", *train],
                          capture_output=True, text=True)
    if done.returncode == ABSENT:
        raise Absent(done.stdout.strip() or done.stderr.strip() or "what the script needs is not installed")
    if done.returncode != 0:
        raise SystemExit(f"{model}: recording failed\n{done.stderr}")
    return Step(args.build / "bin" / "sentinel", profile), profile


# ---------------------------------------------------------------- one training


def swapped_pages():
    counts = dict(re.findall(r"^(pswp\w+) (\d+)", pathlib.Path("/proc/vmstat").read_text(), re.M))
    return int(counts["pswpin"]), int(counts["pswpout"])


def train(contender, model, args, limit, pace):
    """The record of a training, with the bytes that moved. `limit`: bytes that a limited one may hold; `pace`: bytes
    a second, in and out, at which fio goes beside one that pays the drive's toll."""
    with tempfile.TemporaryDirectory(prefix="sentinel-live-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        disk = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sentinel-live-", dir=args.disk)))
        wanted = command(contender, model, folder, disk, args)
        if contender.limited:
            group = stack.enter_context(cgroup.MemoryGroup(f"sentinel-live-{os.getpid()}"))
            group.limit(limit, swap=contender.kind == "swap")
            wanted = group.inside(*wanted)
        beside = (stack.enter_context(fio.Exchange(disk, pace)) if contender.kind in ("fio", "toll") else None)
        swapped = swapped_pages()
        try:
            done = subprocess.run(wanted, env=environment(contender), capture_output=True, text=True,
                                  timeout=args.limit)
        except subprocess.TimeoutExpired:
            return {"failure": f"not done after {args.limit} s"}
        if done.returncode == ABSENT:
            raise Absent(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            killed = done.returncode in (-9, 137)
            return {"failure": "killed: out of memory" if killed else (done.stderr.strip() or "failed")[-300:]}
        record = json.loads((folder / "run.json").read_text())
        if contender.limited:
            record["held_bytes"] = group.peak()
        record["swapped"] = [(now - then) * PAGE for now, then in zip(swapped_pages(), swapped)]
        if beside:
            record["disk_gb_s"] = beside.stop()
        if (folder / "summary.json").exists():
            record["summary"] = json.loads((folder / "summary.json").read_text())
        return record


def steady(record):
    """Sentinel's steps under the plan it has chosen, without the first third; none of what others train."""
    steps = [step for step in record.get("summary", {}).get("steps", []) if step["phase"] == "steady"]
    return steps[max(len(steps) // 3, min(COMPARED, len(steps) - 4)):]


def settled(record):
    """Step times, ms, without the first half; of Sentinel those under the plan."""
    return [step["ms"] for step in steady(record) or record["steps"][len(record["steps"]) // 2:]]


def moved_gb(record):
    """GB in and out a step; None of a Sentinel that never came to run its plan."""
    if "summary" in record:
        steps = steady(record)
        left = [step["demoted_bytes"] + step.get("unwritten_bytes", 0) for step in steps]
        came = [step["promoted_bytes"] for step in steps]
        return [statistics.median(each) / 1e9 for each in (came, left)] if steps else None
    return [size / len(record["steps"]) / 1e9 for size in record["swapped"]]


def of_plan(record):
    """Bytes moved in the settled step as a part of those that its plan moves; None where that moves nothing."""
    planned = sum(record["summary"][f"planned_{way}_bytes"] for way in ("promoted", "demoted"))
    moved = moved_gb(record)
    return sum(moved) * 1e9 / planned if planned and moved else None


def of_predicted(record):
    """Bytes that the drive carried in the settled step as a part of those that were predicted; None without any."""
    predicted = sum(record["summary"][f"predicted_{way}_bytes"] for way in ("in", "out"))
    carried = [step["promoted_bytes"] + step["demoted_bytes"] for step in steady(record)]
    return statistics.median(carried) / predicted if predicted and carried else None


def processor_s(records, key):
    """Of a settled step, in the mean."""
    return statistics.mean(step[key] for record in records for step in record["steps"][len(record["steps"]) // 2:])


def system_s_per_gb(records, unlimited):
    """The kernel's processor seconds that a settled step takes more than an unlimited one, for each GB that it moves."""
    moved = sum(moved_gb(records[0]) or [0])
    return (processor_s(records, "system_s") - processor_s(unlimited, "system_s")) / moved if moved else None


def stolen(records):
    """The part of the processors' time that the host gave to something else in a settled step."""
    return processor_s(records, "stolen_s") * 1e3 / processor_s(records, "ms") / os.cpu_count()


def while_moving_gb_s(records):
    """Bandwidth in and out in the time in which anything was moving in that direction; None where nothing moved."""
    if "disk_gb_s" in records[0]:
        return [statistics.median(way) for way in zip(*(record["disk_gb_s"] for record in records))]
    steps = [step for record in records for step in steady(record)]
    flows = [[step[way] for step in steps if way in step] for way in ("reading", "writing")]
    if not all(flows):
        return None
    return [sum(flow["bytes"] for flow in way) / sum(flow["busy_ms"] for flow in way) / 1e6 for way in flows]


def of_sentinel(contender, records):
    """Sentinel's last record in the same share; throws Absent."""
    done = [record for one in records if (one.name, one.share) == ("Sentinel", contender.share)
            for record in records[one] if "failure" not in record]
    if not done:
        raise Absent(f"Sentinel {contender.share} % has not trained in this round")
    return done[-1]


def pace_of(toll, records):
    """Bytes a second, in and out, of Sentinel's steady steps in the same share."""
    record = of_sentinel(toll, records)
    moved = moved_gb(record)
    if not moved or not all(moved):
        raise Absent(f"Sentinel {toll.share} % moved nothing in this round")
    return [1e12 * way / statistics.median(settled(record)) for way in moved]


def losses(record):
    return [step["loss"] for step in record["steps"]]


# ---------------------------------------------------------------- the table


def row_of(contender, records, reference, step, unlimited):
    """One line of the table. `unlimited`: records of Sentinel's, maybe none. What a limited step takes more than an
    unlimited one it waits for memory or computes more slowly ("slowed"). Where the arithmetic itself took as much more
    of the processors' time, it was not kept from them: their memory or the host was busier, as beside any transfers."""
    row = {"label": contender.label, "kind": contender.kind, "share": contender.share, "ms": None,
           "bound_ms": None}
    good = [record for record in records if "failure" not in record]
    if not good:
        row["failure"] = records[0]["failure"]
        return row
    row["ms"] = statistics.median(ms for record in good for ms in settled(record))
    row["rounds"] = [statistics.median(settled(record)) for record in good]
    row["moved_gb"] = moved_gb(good[0])
    row["stolen"] = stolen(good)
    row["while_moving_gb_s"] = while_moving_gb_s(good)
    row["peak_rss_mb"] = statistics.median(record["peak_rss_kb"] for record in good) / 1024
    row["same_losses"] = all(ours == theirs for record in good
                             for ours, theirs in zip(losses(record), losses(reference)))
    if "summary" in good[0]:
        steps = [one for record in good for one in steady(record)]
        row["demand_faults"] = statistics.median(one["demand_faults"] for one in steps) if steps else None
        row["of_plan"], row["of_predicted"] = of_plan(good[0]), of_predicted(good[0])
        row["checksum_ms"] = statistics.median(one.get("checksum_ms", 0) for one in steps) if steps else None
    if contender.limited and unlimited:
        ms = statistics.median(ms for record in unlimited for ms in settled(record))
        budget = contender.share / 100 * step.peak
        if contender.whole:
            budget = good[0]["summary"]["fast_limit_bytes"] or step.peak
        remakes = contender.kind == "sentinel" and "--no-recompute" not in contender.flags
        row["bound_ms"] = step.bound_ms(budget, ms, remakes)
        if "summary" in good[0]:  # the simulator says how long is waited; computing takes what it took
            predicted, at_best = (statistics.median(record["summary"]["predicted_ms"] for record in those)
                                  for those in (good, unlimited))
            row["predicted_ms"] = ms + predicted - at_best
            if waits := [step["stall_ms"] for record in good for step in steady(record)]:
                row["predicted_wait_ms"], row["waited_ms"] = predicted - at_best, statistics.median(waits)
                row["slowed"] = (row["ms"] - row["waited_ms"]) / ms - 1
                row["arithmetic"] = processor_s(good, "user_s") / processor_s(unlimited, "user_s") - 1
            row["system_s_per_gb"] = system_s_per_gb(good, unlimited)
    return row


def table(model, result):
    best = min((row["ms"] for row in result["rows"] if row["ms"] and row["share"] is None), default=None)
    lines = [["contender", "ms a step", "of the best", "bound ms", "of the bound", "predicted", "off by", "waited",
              "wait predicted", "slowed", "arithmetic", "GB in", "GB out", "of plan", "of predicted", "sums ms",
              "system-s a GB", "stolen", "peak MB", "losses"]]
    for row in result["rows"]:
        if row["ms"] is None:
            lines.append([row["label"], row["failure"]] + [""] * 18)
            continue
        moved = row["moved_gb"] or (0, 0)
        lines.append([row["label"], f"{row['ms']:.0f}", f"{best / row['ms']:.2f}" if best else "",
                      f"{row['bound_ms']:.0f}" if row["bound_ms"] else "",
                      f"{row['bound_ms'] / row['ms']:.2f}" if row["bound_ms"] else "",
                      f"{row['predicted_ms']:.0f}" if row.get("predicted_ms") else "",
                      f"{100 * (row['predicted_ms'] / row['ms'] - 1):+.0f} %" if row.get("predicted_ms") else "",
                      f"{row['waited_ms']:.0f}" if "slowed" in row else "",
                      f"{row['predicted_wait_ms']:.0f}" if "slowed" in row else "",
                      f"{100 * row['slowed']:+.0f} %" if "slowed" in row else "",
                      f"{100 * row['arithmetic']:+.0f} %" if "slowed" in row else "",
                      f"{moved[0]:.2f}", f"{moved[1]:.2f}", f"{row['of_plan']:.2f}" if row.get("of_plan") else "",
                      f"{row['of_predicted']:.2f}" if row.get("of_predicted") else "",
                      f"{row['checksum_ms']:.1f}" if row.get("checksum_ms") else "",
                      f"{row['system_s_per_gb']:.3f}" if row.get("system_s_per_gb") is not None else "",
                      f"{100 * row['stolen']:.0f} %", f"{row['peak_rss_mb']:.0f}",
                      "same" if row["same_losses"] else "differ"])
    widths = [max(len(line[i]) for line in lines if len(line[1]) < 40) for i in range(len(lines[0]))]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
    return f"\n{model}: live tensors peak at {result['peak_gb']:.2f} GB\n{text}{bandwidths(result['rows'])}"


def bandwidths(rows):
    """A line each: in and out while anything moves, beside what fio reaches beside the same arithmetic."""
    best = next((row["while_moving_gb_s"] for row in rows if row["kind"] == "fio" and row["ms"]), None)
    text = f"\nfio beside plain training: {best[0]:.2f} GB/s in, {best[1]:.2f} out" if best else ""
    for row in rows:
        if row["kind"] != "sentinel" or not row.get("while_moving_gb_s"):
            continue
        ours = row["while_moving_gb_s"]
        text += f"\n{row['label']} while it moves: {ours[0]:.2f} GB/s in, {ours[1]:.2f} out"
        if best:
            text += f"; of fio's {ours[0] / best[0]:.2f}, {ours[1] / best[1]:.2f}"
    return text


def compare(model, args, folder):
    """All contenders on one model."""
    say(f"{model}: one step is profiled")
    step, args.profile = profiled(model, args, folder)

    def named(one):
        return not args.only or any(part[1:] == one.label if part[0] == "=" else part in one.label for part in args.only)

    chosen = [one for one in contenders(args.shares) if named(one)]
    limited = [one for one in chosen if one.limited]
    script, *arguments = MODELS[model]
    base = swap.own_memory([sys.executable, str(WORKLOADS / script), *arguments]) if limited else 0
    records = {one: [] for one in chosen}
    with contextlib.ExitStack() as stack:
        swappers = [one for one in chosen if one.kind == "swap"]
        try:
            if swappers:
                stack.enter_context(swap.swap_file(args.disk, 3 * step.peak + (1 << 30)))
        except (Absent, swap.NoSwap) as reason:
            records.update({one: [{"failure": str(reason)}] for one in swappers})
        for number in range(args.rounds):
            for one in chosen:
                if records[one] and "failure" in records[one][0]:
                    continue
                say(f"{model}: round {number + 1} of {args.rounds}, {one.label}")
                try:
                    limit = base + SPARE + int((one.share or 0) / 100 * step.peak)
                    if one.as_sentinel:
                        limit = SPARE + of_sentinel(one, records)["held_bytes"]
                    pace = pace_of(one, records) if one.kind == "toll" else None
                    records[one].append(train(one, model, args, limit, pace))
                except (Absent, cgroup.Unavailable) as reason:
                    records[one].append({"failure": str(reason)})
    plain = next((record for one in chosen if one.kind == "plain" for record in records[one]
                  if "failure" not in record), None)
    reference = plain or next(record for one in chosen for record in records[one] if "failure" not in record)
    unlimited = [record for one in chosen if one.kind == "sentinel" and one.share is None for record in records[one]
                 if "failure" not in record]
    rows = [row_of(one, records[one], reference, step, unlimited) for one in chosen]
    return {"peak_gb": step.peak / 1e9, "process_gb": base / 1e9, "rows": rows}


def main():
    args = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # takes its swap and files along
    say("the disk's bandwidth is measured")
    figures = bandwidth(args)
    results = {}
    for model in args.models:
        with tempfile.TemporaryDirectory(prefix="sentinel-live-") as folder:
            try:
                results[model] = compare(model, args, pathlib.Path(folder))
            except Absent as reason:
                say(f"{model} is left out: {reason}")
                continue
        if args.json:
            args.json.write_text(json.dumps({"disk": figures, "models": results}, indent=1) + "\n")
        print(table(model, results[model]), flush=True)
    if args.picture and results:
        try:
            from picture import draw
            draw(results, args.picture)
        except ImportError as reason:
            say(f"no picture: {reason}; install python3-matplotlib")


if __name__ == "__main__":
    main()
