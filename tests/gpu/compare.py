#!/usr/bin/env python3
"""Training in a share of a GPU's memory, beside what people do today: plain PyTorch, saved tensors on the host
(torch.autograd.graph.save_on_cpu), activation checkpointing, and Sentinel with 20, 40 and 60 % of the peak, once
by demand alone, with DeepUM's tables and with G10's plan, too; then the largest batch within a fixed budget. Prints a
table a model, and writes all of it as JSON.

    compare.py --sentinel BIN [--models A,B] [--shares 40,20,60] [--host-memory 8G] [--seconds 420] [--json FILE]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

NO_TIME = "no time left"
HERE = pathlib.Path(__file__).resolve().parent
MODELS = ("ResNet-152", "BERT-large", "GPT-2", "ViT", "DCGAN")
STEPS = 14  # the first three or four warm up and are profiled


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentinel", type=pathlib.Path, help="the command; without it the others are measured alone")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--shares", type=lambda text: [int(share) for share in text.split(",")], default=[40, 20, 60])
    parser.add_argument("--seconds", type=float, default=420, help="what has not begun by then is left out")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to test this script")
    parser.add_argument("--largest", default="BERT-large", help="the model whose largest batch is looked for; none: ''")
    parser.add_argument("--gpu-memory", default="pools", choices=("auto", "pools", "managed"))
    parser.add_argument("--host-memory", help="bytes (8G): of the first share, also with so much of the host's memory "
                        "and a file below it")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def training(args, model, *flags, batch=None, steps=STEPS):
    words = [sys.executable, str(HERE / "train.py"), model, "--steps", str(steps), "--device", args.device, *flags]
    if batch or args.batch:
        words += ["--batch", str(batch or args.batch)]
    return words + (["--tiny"] if args.tiny else [])


def measured(words, record, summary, seconds):
    """A row of the table, or why there is none. The first half of the steps is not counted."""
    try:
        done = subprocess.run([*map(str, words), "--json", str(record)], capture_output=True, text=True,
                              timeout=max(1, seconds))
    except subprocess.TimeoutExpired:
        return {"failure": NO_TIME}
    if done.returncode != 0:
        lines = (done.stderr.strip() or "failed without a word").splitlines()
        return {"failure": next((line for line in lines if "out of memory" in line), lines[-1])[-200:]}
    run = json.loads(record.read_text())
    times = [step["ms"] for step in run["steps"]]
    row = {"ms": statistics.median(times[len(times) // 2:]), "losses": [step["loss"] for step in run["steps"]],
           "peak_bytes": run.get("peak_bytes", 0)}
    if summary.exists():
        row["summary"] = json.loads(summary.read_text())
    return row


def under(args, fast, folder, words, host=None, policy=None):
    """The words under `sentinel run`."""
    budget = (["--fast", fast] if fast else []) + (["--host-memory", host] if host else [])
    budget += ["--policy", policy] if policy else []
    return [args.sentinel, "run", "--tiers", "fast=gpu0,slow=host", "--gpu-memory", args.gpu_memory, *budget,
            "--quiet", "--summary", folder / "summary.json", "--", *words]


def contenders(args, model, folder):
    """(label, command) in the order of what is to be known first."""
    first, *others = args.shares

    def sentinel(share):
        return (f"Sentinel {share} %" if share else "Sentinel",
                under(args, f"{share}%" if share else None, folder, training(args, model)))

    yield "plain", training(args, model)
    if args.sentinel:
        yield sentinel(first)
    for technique in ("save_on_cpu", "checkpoint"):
        yield technique, training(args, model, "--technique", technique)
    if args.sentinel:
        for share in [*others[:1], None, *others[1:]]:
            yield sentinel(share)
        for policy in ("lru", "deepum", "g10"):  # by demand alone, with correlation tables, by another's plan
            yield (f"Sentinel {first} %, {policy}",
                   under(args, f"{first}%", folder, training(args, model), policy=policy))
        if args.host_memory:
            yield (f"Sentinel {first} %, file",
                   under(args, f"{first}%", folder, training(args, model), args.host_memory))


def compare(args, deadline):
    """By model and contender. The first contenders of all models come before the next ones of any."""
    rows = {model: {} for model in args.models}
    with tempfile.TemporaryDirectory(prefix="sentinel-gpu-") as name:
        folder = pathlib.Path(name)
        record, summary = folder / "run.json", folder / "summary.json"
        for round_ in zip(*(contenders(args, model, folder) for model in args.models)):
            for model, (label, words) in zip(args.models, round_):
                left = deadline - time.monotonic()
                print(f"{model}: {label}", file=sys.stderr, flush=True)
                rows[model][label] = measured(words, record, summary, left) if left > 0 else {"failure": NO_TIME}
                for path in (record, summary):
                    path.unlink(missing_ok=True)
    return rows


def same(row, rows):
    """Whether losses are plain PyTorch's; None where there are none to compare with."""
    reference = rows["plain"].get("losses")
    return row["losses"] == reference if reference else None


def table(model, rows):
    lines = [f"\n{model}", f"{'':24} {'ms a step':>10} {'of plain':>9} {'GB on the device':>17}  losses"]
    for label, row in rows.items():
        if "failure" in row:
            lines.append(f"{label:24} {row['failure']}")
            continue
        held = row.get("summary", {}).get("peak_fast_bytes") or row["peak_bytes"]
        share = f"{rows['plain']['ms'] / row['ms']:.2f}" if "ms" in rows["plain"] else ""
        losses = {True: "same", False: "differ", None: "?"}[same(row, rows)]
        profiled = [step["ms"] for step in row.get("summary", {}).get("steps", []) if step["phase"] == "profile"]
        cost = f"  the profiled step took {profiled[0] / row['ms']:.2f} times that" if profiled else ""
        lines.append(f"{label:24} {row['ms']:10.1f} {share:>9} {held / 1e9:17.2f}  {losses}{cost}")
    return "\n".join(lines)


def largest_batch(args, model, limit, deadline):
    """Within `limit` bytes: Sentinel's by `sentinel fit`, plain PyTorch's in the same way, a tenth too small at most.
    Throws subprocess.TimeoutExpired."""
    def left():
        return max(1, deadline - time.monotonic())

    def plain_trains(batch):
        words = training(args, model, "--limit", str(limit), batch=batch, steps=3)
        return subprocess.run(words, capture_output=True, timeout=left()).returncode == 0

    good, bad = 1, None
    while bad is None or bad - good > max(1, good // 10):
        batch = 2 * good if bad is None else (good + bad) // 2
        if plain_trains(batch):
            good = batch
        else:
            bad = batch
    words = training(args, model, batch="{}", steps=8)
    fit = subprocess.run([str(args.sentinel), "fit", "--tiers", "fast=gpu0,slow=host", "--fast", str(limit), "--quiet",
                          "--from", str(good), "--within", "10", "--", *words], capture_output=True, text=True,
                         timeout=left())
    found = int(fit.stdout) if fit.returncode == 0 else fit.stderr[-300:]
    return {"limit_bytes": limit, "plain": good, "sentinel": found}


def main():
    args = options()
    deadline = time.monotonic() + args.seconds
    results = {"models": compare(args, deadline - args.seconds / 5 if args.sentinel and args.largest else deadline)}
    for model, rows in results["models"].items():
        print(table(model, rows), flush=True)
    if args.sentinel and args.largest:
        try:
            results["largest"] = largest_batch(args, args.largest, 16 << 30, deadline)
        except subprocess.TimeoutExpired:
            results["largest"] = {"failure": NO_TIME}
        print(f"\nlargest batch of {args.largest} in 16 GiB: {results['largest']}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    # A contender may run out of memory, and time may run out; Sentinel may not fail or change a number.
    wrong = [(model, label) for model, rows in results["models"].items() for label, row in rows.items()
             if "Sentinel" in label and (row["failure"] != NO_TIME if "failure" in row else same(row, rows) is False)]
    if wrong:
        print(f"wrong or failed: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
