#!/usr/bin/env python3
"""The tables of what was measured, and what it comes to beside the aims.

    table.py results.json
    table.py --granule results.json     the size of chunks in which Sentinel was faster
"""
import json
import pathlib
import statistics
import sys

import torch_test
from compared import (MODELS, NO_TIME, SHARES, Contender, better_granule, in_any_chunks, not_comparable, without_plain,
                      wrong)

TESTS = ("gpu_engine_test", "gpu_device_test", "memcheck",
         *(f"torch_test {case}" for case in torch_test.CASES))
TOO_LARGE = "name more than"  # ops, than a budget holds: what Sentinel says before one ends training
NOT_COMPARABLE = "not comparable"  # a figure, and a verdict, that another call hardly changes
PAPER = 4.2  # times the batch on a GPU, on average (Sentinel, HPCA 2021)


def of_model(model, rows):
    lines = [f"\n{model}", f"{'':24} {'ms a step':>10} {'of plain':>9} {'GB on the device':>17}  losses"]
    for label, row in rows.items():
        if "failure" in row:
            lines.append(f"{label:24} {row['failure']}")
            continue
        held = row.get("summary", {}).get("peak_fast_bytes") or row["peak_bytes"]
        share = f"{row['of_plain']:.2f}" if "of_plain" in row else ""
        losses = {True: "same", False: "differ", None: ""}[row.get("same")]
        lines.append(f"{label:24} {row['ms']:10.1f} {share:>9} {held / 1e9:17.2f}  {losses}".rstrip())
        lines += [f"  {line}" for line in row.get("said", []) if TOO_LARGE in line]
    if not_comparable(rows):
        lines.append("plain PyTorch differs from itself: not comparable")
    if without_plain(rows):
        lines.append("plain PyTorch failed: not comparable")
    return lines


def of_movement(rates):
    lines = [f"\n{'GB/s (of plain copies)':24} {'in':>14} {'out':>14} {'both at once':>14}"]
    for kind, row in rates.items():
        cells = (f"{row[way]:7.1f} {100 * row[way] / rates['plain'][way]:4.0f} %" for way in ("in", "out", "both"))
        lines.append(f"{kind:24} " + " ".join(f"{cell:>14}" for cell in cells))
    return lines


def of_probe(rows):
    lines = [f"\n{'microseconds a chunk':24} {'map':>10} {'(worst)':>10} {'unmap':>10} {'(worst)':>10}"]
    return lines + [f"{name:24} {row['map']:10.1f} {row['map_max']:10.1f} {row['unmap']:10.1f} {row['unmap_max']:10.1f}"
                    for name, row in rows.items()]


def of_mapping(rows):
    lines = [f"\n{'microseconds a granule':24} {'map':>14} {'unmap':>14}"]
    return lines + [f"{kind:24} {row['map']:14.1f} {row['unmap']:14.1f}" for kind, row in rows.items()]


def batches(row):
    """(plain, Sentinel, whether both searches were over); None where one has none."""
    plain, ours = row["plain"], row["sentinel"]
    if not plain.get("batch") or not ours.get("batch"):
        return None
    return plain["batch"], ours["batch"], plain["over"] and ours["over"]


def of_largest(rows):
    lines = [f"\n{'largest batch':24} {'plain':>10} {'Sentinel':>10} {'times':>7}"]
    for model, row in rows.items():
        found = batches(row)
        if found is None:
            reasons = (row[who].get("failure", "nothing found") for who in ("plain", "sentinel")
                       if not row[who].get("batch"))
            lines.append(f"{model:24} {'; '.join(reasons)}")
            continue
        plain, ours, over = found
        lines.append(f"{model:24} {plain:10} {ours:10} {ours / plain:7.1f}  in {row['limit_bytes'] / 2**30:.1f} GiB, "
                     f"model of size {row['size']}{'' if over else '; the search was cut short'}")
    return lines


# ---------------------------------------------------------------- what it comes to


def judged(aim, values, good, shape):
    """A row: what is aimed at, by name what was measured (None: it was not), and the verdict. What is only to be known
    has no `good`."""
    known = {name: value for name, value in values.items() if value not in (None, NOT_COMPARABLE)}
    if good and not all(map(good, known.values())):
        verdict = "missed"
    elif None in values.values():
        verdict = "open"
    elif len(known) < len(values):
        verdict = NOT_COMPARABLE
    else:
        verdict = "met" if good else "known"
    told = ", ".join(f"{name} {shape(value) if name in known else value or '?'}" for name, value in values.items())
    return aim, told, verdict


def speed(rows, label):
    """Of plain PyTorch's, in chunks of the better size; 0 of what failed; None of what is not known yet."""
    known = [0.0 if "failure" in row else row.get("of_plain") for row in in_any_chunks(rows, label)
             if row.get("failure") != NO_TIME]
    return None if None in known else max(known, default=None)


def lead(rows):
    """Sentinel's speed over the best other's, in the share where it leads least."""
    leads = []
    for share in SHARES:
        ours = speed(rows, Contender(share).label)
        others = [speed(rows, label) for label in ("save_on_cpu", "checkpoint", Contender(share, "lru").label)]
        if ours is None or None in others:
            return None
        leads.append(ours / max(others) if max(others) > 0 else float("inf"))
    return min(leads)


def overhead(rows):
    share = speed(rows, Contender().label)
    return None if share is None else 1 / share - 1 if share else float("inf")


def profiling(rows):
    """The profiled step in plain steps."""
    row = rows.get(Contender().label, {})
    profiled = [step["ms"] for step in row.get("summary", {}).get("steps", []) if step["phase"] == "profile"]
    return profiled[0] / (row["ms"] * row["of_plain"]) if profiled and "of_plain" in row else None


def identical(rows):
    """Whether every row of Sentinel's has plain PyTorch's losses; None where one was not held against them."""
    ours = [row for label, row in rows.items() if label.startswith("Sentinel") and row.get("failure") != NO_TIME]
    if wrong(rows):
        return False
    return True if ours and all(row.get("same") is True for row in ours) else None


def times(rows):
    found = batches(rows) if rows else None
    return found[1] / found[0] if found else None


def mean_times(largest):
    """Over the models, of which three are to be known."""
    known = [value for value in map(times, largest.values()) if value is not None]
    return statistics.mean(known) if len(known) >= 3 else None


def passed(row):
    """Of a step; None where it is not known yet."""
    return None if row is None or row.get("failure") == NO_TIME else row["status"] == 0 and "failure" not in row


def verdicts(data):
    """(aim, measured, verdict)."""
    models = {model: data["models"].get(model, {}) for model in MODELS}
    rates, steps = data["movement"], data["steps"]

    def each(figure):
        return {model: NOT_COMPARABLE if without_plain(rows) else figure(rows) for model, rows in models.items()}

    def of_link(kind):  # ranges of many granules, as tensors have
        return min(rates[kind][way] / rates["plain"][way] for way in ("in", "out", "both")) if rates else None

    def percent(value):
        return f"{100 * value:.1f} %"

    def factor(value):
        return f"{value:.2f}"

    first = Contender(SHARES[0]).label
    yield judged("losses to the last bit", each(identical), bool, lambda value: "same" if value else "differ or failed")
    yield judged(f"{first}: 0.95 of unlimited", each(lambda rows: speed(rows, first)), lambda v: v >= 0.95, factor)
    yield judged("over the best other > 1", each(lead), lambda value: value > 1, factor)
    yield judged(f"largest batch, times: {PAPER}", {"mean": mean_times(data["largest"])},
                 lambda value: value >= PAPER, factor)
    yield judged("profiled step, in plain steps", each(profiling), None, factor)
    yield judged("ample memory: overhead < 1 %", each(overhead), lambda value: value < 0.01, percent)
    yield judged("movement: 95 % of the link", {kind: of_link(kind) for kind in ("pools", "managed")},
                 lambda value: value >= 0.95, percent)
    yield judged("tests and memory checker",
                 {name: passed(steps.get(name)) for name in TESTS}, bool, lambda ok: "clean" if ok else "failed")


def text(data):
    about = data["about"]
    lines = [f"{about['device'] or 'no device'}, driver {about['driver']}, CUDA {about['cuda']}, PyTorch "
             f"{about['torch']}; sources {about['sources']}"]
    lines.append(", ".join(f"{name} {value}" for name, value in about["options"].items()))
    if data["movement"]:
        lines += of_movement(data["movement"])
    if data["mapping"]:
        lines += of_mapping(data["mapping"])
    if data["probe"]:
        lines += of_probe(data["probe"])
    for model, rows in data["models"].items():
        lines += of_model(model, rows)
    if data["largest"]:
        lines += of_largest(data["largest"])
    lines.append("")
    lines += [f"{verdict:7} {aim:32} {measured}" for aim, measured, verdict in verdicts(data)]
    return "\n".join(lines)


def main():
    path = pathlib.Path(sys.argv[-1])
    if sys.argv[1] == "--granule":
        print(better_granule(json.loads(path.read_text())["models"] if path.exists() else {}))
    else:
        print(text(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
