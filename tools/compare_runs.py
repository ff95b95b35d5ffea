#!/usr/bin/env python3
"""The table at the end of quickstart.sh: plain PyTorch, Sentinel unlimited, Sentinel at a fifth.
Exit 1 if a loss, a parameter or the optimizer's state differs in a single bit."""
import json
import pathlib
import statistics
import sys

ROWS = [("plain PyTorch", "plain", None), ("Sentinel, unlimited", "unlimited", "unlimited-summary"),
        ("Sentinel at 20 %", "fifth", "fifth-summary")]


def load(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def mib(count):
    return f"{count / 2**20:.0f} MiB" if count else "-"


def row(folder, label, name, summary):
    record = load(folder, name)
    times = [step["ms"] for step in record["steps"]]
    settled = times[len(times) // 2:]
    predicted = "-"
    tensors = mib(load(folder, "unlimited-summary")["peak_unlimited_bytes"])  # alive at once
    if summary:
        figures = load(folder, summary)
        steady = [step["ms"] for step in figures["steps"] if step["phase"] == "steady"]
        settled = steady[1:] or settled
        tensors = mib(figures["peak_fast_bytes"] or figures["peak_unlimited_bytes"])
        predicted = f"{figures['predicted_ms']:.0f} ms" if figures.get("predicted_ms") else "-"
    loss = float.fromhex(record["steps"][-1]["loss"])
    return [label, f"{statistics.median(settled):.0f} ms", predicted, tensors, mib(record["peak_rss_kb"] * 1024),
            f"{loss:.17g}", record]


def same(a, b):
    losses = [[step["loss"] for step in record["steps"]] for record in (a, b)]
    return losses[0] == losses[1] and all(a[key] == b[key] for key in ("params_sha256", "optimizer_sha256"))


def main():
    folder = pathlib.Path(sys.argv[1])
    head = ["", "step", "predicted", "tensors in memory", "process peak", "final loss"]
    rows = [row(folder, *entry) for entry in ROWS]
    table = [head] + [r[:-1] for r in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    equal = all(same(rows[0][-1], r[-1]) for r in rows[1:])
    print("losses of every step, parameters and optimizer state:",
          "identical to the last bit" if equal else "DIFFERENT")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
