#!/usr/bin/env python3
"""GPT-2 trained in full in a share of its memory: tokens a second beside plain, gradient checkpointing, Linux's swap, and
DeepSpeed's ZeRO with weights and moments on the same drive.

The training is examples/finetune_gpt2.py, unmodified. A share is of the live peak of tensors; a training within one runs in
a memory cgroup that holds that share and what the process holds beside its tensors. Medians of the last quarter of the
steps, for Sentinel compares two plans before, and over the rounds. Losses and weights must be plain's to the last bit.
Needs root, for cgroups and swap, and room for twice the peak on the drive. Rows that cannot be had say why.

  llm.py --python PYTHON [--sizes small,medium,large] [--shares 25,12] [--rounds 3] [--steps 22] [--kinds ...] [--json FILE]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "integration")]
import cgroup  # noqa: E402
import swap  # noqa: E402

SCRIPT = ROOT / "examples" / "finetune_gpt2.py"
KINDS = ("plain", "checkpointing", "sentinel", "swap", "zero")
SPARE = 64 << 20  # of a cgroup
# One rank without a launcher, whose extensions are built when first used.
ONE_RANK = ("env", "DS_ACCELERATOR=cpu", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "LOCAL_SIZE=1", "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=29500")
SLOW_STEPS = 4  # of what is slow by an order of magnitude


class Bench:
    def __init__(self, args, size, folder):
        self.args, self.size, self.folder = args, size, folder
        self.plain, self.own_bytes, self.live_bytes = None, 0, 0

    def train(self, before, group=None, steps=None, *more):
        """The record of one training, or the reason why there is none."""
        record = self.folder / "record.json"
        record.unlink(missing_ok=True)
        words = [*before, self.args.python, SCRIPT, "--size", self.size, "--steps", steps or self.args.steps, "--batch",
                 self.args.batch, "--length", self.args.length, "--json", record, *more]
        words = group.inside(*words) if group else words
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if done.returncode != 0 or not record.exists():
            return f"ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:120]}"
        return json.loads(record.read_text())

    def sentinel(self, *flags):
        return [BUILD / "bin" / "sentinel", "run", "--quiet", "--slow", self.args.slow, "--summary",
                self.folder / "summary.json", *flags, "--"]

    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    def measure_memory(self):
        """What tensors take at the peak, and the process beside them."""
        with cgroup.MemoryGroup(f"sentinel-llm-{os.getpid()}") as group:
            record = self.train(self.sentinel(), group, 4)
            if isinstance(record, str):
                raise SystemExit(f"GPT-2 {self.size} does not train without a limit: {record}")
            self.live_bytes = self.summary()["peak_unlimited_bytes"]
            self.own_bytes = max(0, group.peak() - self.live_bytes)

    def zero(self):
        """ZeRO's third stage, all it can offload on the drive."""
        place = {"device": "nvme", "nvme_path": str(self.folder), "pin_memory": False}
        config = self.folder / "zero.json"
        config.write_text(json.dumps({
            "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
            "zero_optimization": {"stage": 3, "offload_optimizer": place, "offload_param": place},
            "aio": {"block_size": 1 << 20, "queue_depth": 8, "overlap_events": True}}))
        return "--deepspeed", config

    def within(self, share, before, steps=None, with_swap=False, more=()):
        with cgroup.MemoryGroup(f"sentinel-llm-{os.getpid()}") as group:
            group.limit(int(self.live_bytes * share / 100) + self.own_bytes + SPARE, swap=with_swap)
            return self.train(before, group, steps, *more)

    def rows(self):
        """(what, record or reason, bytes written to the drive in a step or none)"""
        if "plain" in self.args.kinds:
            yield "plain", self.train([]), None
        if "checkpointing" in self.args.kinds:
            yield "gradient checkpointing", self.train([], None, None, "--checkpointing"), None
        for share in self.args.shares:
            if "sentinel" in self.args.kinds:
                found = self.within(share, self.sentinel("--fast", f"{share}%"))
                written = None if isinstance(found, str) else self.summary()["wear"]["written_bytes_per_step"]
                yield f"Sentinel, {share} %", found, written
            if "swap" in self.args.kinds:
                with swap.swap_file(self.args.slow, 2 * self.live_bytes):
                    yield f"Linux's swap, {share} %", self.within(share, [], SLOW_STEPS, with_swap=True), None
            if "zero" in self.args.kinds:
                yield f"ZeRO, {share} %", self.within(share, ONE_RANK, more=self.zero()), None

    def tokens_per_s(self, record):
        seconds = record["seconds"]
        return self.args.batch * self.args.length / statistics.median(seconds[-max(1, len(seconds) // 4):])


def require_same(plain, record, what):
    """Losses depend on the number of steps by the schedule of the learning rate: only runs of as many are compared."""
    others = what.startswith(("gradient checkpointing", "ZeRO"))  # they compute in another order
    if others or plain is None or len(plain["losses"]) != len(record["losses"]):
        return
    if (plain["losses"], plain["weights_sha256"]) != (record["losses"], record["weights_sha256"]):
        raise SystemExit(f"the numbers differ: {what}")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch and transformers")
    parser.add_argument("--sizes", default="small,medium,large")
    parser.add_argument("--shares", default="25,12", help="percent of the live peak")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--slow", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    parser.add_argument("--json", type=pathlib.Path, help="every measurement, written after each")
    args = parser.parse_args()
    args.sizes, args.kinds = args.sizes.split(","), args.kinds.split(",")
    args.shares = [int(share) for share in args.shares.split(",")]
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    return args


def main():
    args, found = options(), []
    print("| GPT-2 | | tokens/s | of plain | MB written a step |\n| --- | --- | --- | --- | --- |", flush=True)
    for size in args.sizes:
        with tempfile.TemporaryDirectory(prefix="sentinel-llm-", dir=args.slow) as folder:
            bench, speeds, told = Bench(args, size, pathlib.Path(folder)), {}, {}
            bench.measure_memory()
            for _ in range(args.rounds):
                for what, record, written in bench.rows():
                    if isinstance(record, str):
                        told[what] = record
                        continue
                    print(f"GPT-2 {size}, {what}: {bench.tokens_per_s(record):.1f} tokens/s", file=sys.stderr, flush=True)
                    if what == "plain":
                        bench.plain = record
                    require_same(bench.plain, record, what)
                    speeds.setdefault(what, []).append((bench.tokens_per_s(record), written))
                    found.append({"size": size, "what": what, "tokens_per_s": speeds[what][-1][0], "written": written,
                                  "seconds": record["seconds"], "live_bytes": bench.live_bytes})
                    if args.json:
                        args.json.write_text(json.dumps(found, indent=1) + "\n")
        plain = statistics.median(speed for speed, _ in speeds["plain"]) if "plain" in speeds else None
        for what, measured in speeds.items():
            speed = statistics.median(speed for speed, _ in measured)
            share = f"{speed / plain:.3f}" if plain else ""
            written = "" if measured[0][1] is None else f"{statistics.median(each for _, each in measured) / 1e6:.0f}"
            print(f"| {size}, peak {bench.live_bytes / 2**30:.2f} GiB | {what} | {speed:.1f} | {share} | {written} |", flush=True)
        for what, reason in told.items():
            print(f"| {size} | {what} | {reason} | | |", flush=True)


if __name__ == "__main__":
    main()
