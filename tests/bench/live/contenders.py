"""Who trains how: the command, the environment and the memory of each contender."""

import dataclasses
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORKLOADS = ROOT / "tests" / "workloads"

# The seven models of the comparison: script and arguments.
MODELS = {
    "ResNet-110": ["resnet_cifar.py", "--depth", "110", "--batch", "128"],
    "ResNet-32": ["resnet_cifar.py", "--depth", "32", "--batch", "512"],
    "MobileNetV1": ["mobilenet.py", "--batch", "512"],
    "MobileNetV2": ["mobilenet.py", "--version", "2", "--batch", "96"],
    "DCGAN": ["dcgan.py", "--batch", "192"],
    "LSTM": ["lstm_lm.py", "--hidden", "1500", "--layers", "2", "--batch", "64", "--seq", "35"],
    "BERT-base": ["bert_mlm.py", "--layers", "12", "--hidden", "768", "--heads", "12", "--batch", "8",
                  "--seq", "128"],
}

KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(256 << 20)}
JEMALLOC = pathlib.Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")


class Absent(Exception):
    """Why a contender cannot take part here."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """`share`: of the live peak, what a limited one may hold beside the process itself; None: unlimited."""
    name: str
    kind: str  # plain, fio, sentinel, toll, swap, checkpoint, offload
    share: int | None = None
    environment: tuple = ()
    flags: tuple = ()  # of sentinel run
    steps: int = 16  # of a training; what is slow by an order of magnitude makes fewer
    as_sentinel: bool = False  # it may hold what Sentinel's did in its cgroup in that share, not what the share allows
    whole: bool = False  # Sentinel with no budget but the cgroup's limit, all of which it may use

    @property
    def limited(self):
        return self.share is not None and self.kind != "toll"

    @property
    def label(self):
        return self.name if self.share is None else f"{self.name} {self.share} %"


def contenders(shares):
    """In the order in which each round runs them."""
    yield Contender("plain", "plain")
    yield Contender("plain, kept", "plain", environment=tuple(KEPT.items()))
    yield Contender("plain, jemalloc", "plain", environment=(("LD_PRELOAD", str(JEMALLOC)),))
    yield Contender("plain beside fio", "fio", environment=tuple(KEPT.items()))
    yield Contender("checkpoint", "checkpoint")
    yield Contender("offload hooks", "offload", steps=4)
    yield Contender("Sentinel", "sentinel")
    for share in shares:
        yield Contender("Sentinel", "sentinel", share)
        yield Contender("Sentinel without replays", "sentinel", share, flags=("--no-recompute",))
        for level in ("off", "full"):
            yield Contender(f"Sentinel, checksums {level},", "sentinel", share,
                            environment=(("SENTINEL_CHECKSUM", level),))
        yield Contender("Sentinel in the limit,", "sentinel", share, whole=True)
        yield Contender("drive's toll", "toll", share)
        yield Contender("offload hooks", "offload", share, steps=4)
        yield Contender("Linux swap", "swap", share, steps=4)
        yield Contender("swap in as little,", "swap", share, steps=4, as_sentinel=True)


def command(contender, model, folder, disk, options):
    """The training's command line; it leaves run.json, and Sentinel a summary.json, in the folder. `disk`: the
    folder for what leaves memory."""
    script, *arguments = MODELS[model]
    steps = options.steps or contender.steps
    train = [str(WORKLOADS / script), *arguments, "--steps", str(steps), "--json", str(folder / "run.json")]
    python = sys.executable
    if contender.kind in ("sentinel", "toll"):
        memory = ["--fast", f"{contender.share}%"] if contender.limited and not contender.whole else []
        return [str(options.build / "bin" / "sentinel"), "run", *memory, *contender.flags, "--profile", str(options.profile),
                "--slow", str(disk), "--summary", str(folder / "summary.json"), "--quiet", "--",
                python, *train]
    if contender.kind in ("checkpoint", "offload"):
        return [python, str(HERE / "technique.py"), contender.kind, str(disk), *train]
    return [python, *train]


def environment(contender):
    """What the contender's process is given; throws Absent where a library is missing."""
    if contender.name == "plain, jemalloc" and not JEMALLOC.exists():
        raise Absent("jemalloc is not installed (libjemalloc2)")
    return dict(os.environ, **dict(contender.environment))
