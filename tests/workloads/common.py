"""What the example trainings share: options, data, and a record of the run.

A script reads like any PyTorch training: it builds a model and an optimizer,
asks here for batches, and wraps each step in `with run.step(n) as report:`.
The record keeps losses to the last bit and hashes of everything trained, so
that two runs can be compared byte for byte.
"""

import argparse
import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import corpus
import eager

# ---------------------------------------------------------------- options


def options(description, batch, steps=10):
    """A parser with the options that every script has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch", type=int, default=batch, help="samples a step")
    parser.add_argument("--steps", type=int, default=steps, help="training steps, from 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))),
                        help="threads of PyTorch's operators")
    parser.add_argument("--json", metavar="FILE", help="write the record of the run here")

    differ = parser.add_argument_group("steps that differ from the others")
    differ.add_argument("--checkpoint-at", type=int, metavar="N",
                        help="save a checkpoint after N steps and go on")
    differ.add_argument("--checkpoint-to", default="checkpoint.pt", metavar="FILE")
    differ.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    differ.add_argument("--raise-at", type=int, metavar="N",
                        help="an exception in the middle of step N's forward pass; "
                             "it is caught and the step is given up")
    differ.add_argument("--subprocess-at", type=int, metavar="N",
                        help="run a program after step N's forward pass, before its backward")
    differ.add_argument("--fork-at", type=int, metavar="N",
                        help="fork at the same place; the child hashes the parameters it "
                             "sees, the parent compares")
    return parser


def block_options(parser):
    parser.add_argument("--checkpoint-blocks", action="store_true",
                        help="compute each block's activations once more in the backward pass, by torch.utils.checkpoint")


def checkpoint_blocks(blocks, args):
    """With --checkpoint-blocks: between its forward and its backward pass, a block keeps its input alone."""
    if not args.checkpoint_blocks:
        return
    from torch.utils.checkpoint import checkpoint
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def image_options(parser):
    parser.add_argument("--images", type=int, default=Digits.TRAINING,
                        help="images an epoch; repeated where there are fewer")
    parser.add_argument("--workers", type=int, default=0, help="data loading processes")
    parser.add_argument("--worker-start", choices=("fork", "spawn"), default="fork")
    parser.add_argument("--last-batch", action="store_true",
                        help="keep each epoch's last, smaller batch")


def text_options(parser, vocab, seq):
    parser.add_argument("--seq", type=int, default=seq, help="tokens a sample")
    parser.add_argument("--varying-seq", action="store_true",
                        help="sequence lengths of 1, 3/4, 1/2 and 1/4 of --seq, drawn by step")
    parser.add_argument("--tokens", choices=("words", "bytes"), default="words")
    parser.add_argument("--vocab", type=int, default=vocab, help="size of the word vocabulary")


def begin(args):
    """Threads, seeds, deterministic operators."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if not getattr(args, "checkpoint_blocks", False):   # PyTorch 2's asks the compiler for its settings
        eager.without_compiler()
    eager.be_deterministic()
    if hasattr(torch.utils, "deterministic"):
        # PyTorch 2 would else write NaN into every new tensor: nothing here reads
        # uninitialized memory, and the fills would be most of the memory traffic.
        torch.utils.deterministic.fill_uninitialized_memory = False


def seeded(*numbers):
    """A random generator that depends on nothing but these numbers."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


# ---------------------------------------------------------------- images


class Digits(Dataset):
    """scikit-learn's 1797 handwritten digits, enlarged to size x size x 3, in [-1, 1].

    An item is a whole batch: it is asked for by a list of indices. One image in
    six is held out for evaluation.
    """

    TRAINING = 1497

    def __init__(self, size, length=None, held_out=False):
        images, labels = corpus.digits(held_out)
        self.images = torch.from_numpy(images).unsqueeze(1)
        self.labels, self.size = torch.from_numpy(labels).long(), size
        self.length = length or len(self.labels)

    def __len__(self):
        return self.length

    def __getitem__(self, indices):
        rows = torch.tensor(indices) % len(self.labels)
        images = F.interpolate(self.images[rows], size=self.size, mode="bilinear",
                               align_corners=False)
        return images.expand(-1, 3, -1, -1).contiguous(), self.labels[rows]


def batches(dataset, args, skip=0):
    """Shuffled batches without end, from the skip-th on. Each epoch has a DataLoader
    of its own, as in most scripts: with workers, that is a set of processes an epoch."""
    if args.batch > len(dataset):
        raise SystemExit(f"a batch of {args.batch} needs --images {args.batch} or more")
    whole, rest = divmod(len(dataset), args.batch)
    an_epoch = whole + (1 if rest and args.last_batch else 0)
    done, skip = divmod(skip, an_epoch)
    for epoch in itertools.count(done):
        order = torch.randperm(len(dataset), generator=seeded(args.seed, "epoch", epoch)).tolist()
        parts = [order[i * args.batch:(i + 1) * args.batch] for i in range(skip, an_epoch)]
        skip = 0
        yield from DataLoader(
            dataset, sampler=parts, batch_size=None, num_workers=args.workers,
            multiprocessing_context=args.worker_start if args.workers else None,
            generator=seeded(args.seed, "workers", epoch))


# ---------------------------------------------------------------- text

UNKNOWN, MASK, SPECIAL = corpus.UNKNOWN, corpus.MASK, corpus.SPECIAL


def text(args):
    """The text as one long tensor of tokens, and the size of the vocabulary."""
    tokens, vocab = corpus.text(args.tokens == "words", args.vocab)
    return torch.tensor(tokens), vocab


def sequence_length(args, step):
    if not args.varying_seq:
        return args.seq
    quarters = 4 - int(torch.randint(4, (1,), generator=seeded(args.seed, "length", step)))
    return max(1, args.seq * quarters // 4)


# ---------------------------------------------------------------- the run


class Interruption(Exception):
    """What --raise-at raises."""


class Run:
    """The record of one training: times and prints the steps, saves and restores
    checkpoints, makes the steps differ that the options name."""

    def __init__(self, args, models, optimizers):
        self.args, self.models, self.optimizers = args, models, optimizers
        self.first = 0      # the first step to do: later than 0 after --resume
        self.carry = {}     # tensors handed from step to step, part of a checkpoint
        self.now = None     # the step in progress
        self.record = {"steps": []}
        if args.resume:
            self._restore()
        self._at(args.raise_at, _middle(models[0]).register_forward_pre_hook, _interrupt)
        self._at(args.subprocess_at, models[0].register_forward_hook, _run_program)
        self._at(args.fork_at, models[0].register_forward_hook, lambda: _fork(models))

    @contextlib.contextmanager
    def step(self, number):
        """One step. What it yields takes the step's loss, and any other value by name."""
        entry = {"step": number, "loss": None}

        def report(**values):
            for name, value in values.items():
                entry[name] = float(value.detach()).hex()

        self.now, start, before = number, time.perf_counter(), processor_s()
        try:
            yield report
        except Interruption:
            pass
        entry["ms"] = round((time.perf_counter() - start) * 1000, 3)
        for name, seconds in processor_s().items():
            entry[name] = round(seconds - before[name], 6)
        self.now = None
        self.record["steps"].append(entry)
        values = "  ".join(f"{name} {float.fromhex(value):.6f}" for name, value in entry.items()
                           if isinstance(value, str)) or "given up in its forward pass"
        print(f"step {number:4}  {values}  {entry['ms']:.1f} ms", flush=True)
        if number + 1 == self.args.checkpoint_at:
            self._save(number + 1)

    def evaluated(self, step, loss, accuracy):
        self.record.setdefault("evaluations", []).append(
            {"step": step, "loss": loss.hex(), "accuracy": accuracy.hex()})
        print(f"step {step:4}  held out: loss {loss:.6f}  accuracy {accuracy:.4f}", flush=True)

    def finish(self):
        self.record["params_sha256"] = sha256(parameters(self.models))
        self.record["optimizer_sha256"] = sha256(optimizer_state(self.optimizers))
        self.record["peak_rss_kb"] = peak_rss_kb()
        print(f"parameters {self.record['params_sha256'][:16]}  "
              f"optimizer {self.record['optimizer_sha256'][:16]}  "
              f"peak {self.record['peak_rss_kb'] / 1024:.0f} MB")
        if self.args.json:
            pathlib.Path(self.args.json).write_text(json.dumps(self.record, indent=1) + "\n")

    def _at(self, step, register, action):
        """Does the action once, when the hook fires in this step."""
        if step is None:
            return

        def hook(*_):
            if self.now == step:
                handle.remove()
                action()

        handle = register(hook)

    def _save(self, steps_done):
        torch.save({"first": steps_done, "carry": self.carry, "random": torch.get_rng_state(),
                    "models": [model.state_dict() for model in self.models],
                    "optimizers": [one.state_dict() for one in self.optimizers]},
                   self.args.checkpoint_to)

    def _restore(self):
        saved = torch.load(self.args.resume)
        for model, state in zip(self.models, saved["models"]):
            model.load_state_dict(state)
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.first, self.carry = saved["first"], saved["carry"]
        torch.set_rng_state(saved["random"])


def _middle(model):
    leaves = [module for module in model.modules() if not list(module.children())]
    return leaves[len(leaves) // 2]


def _interrupt():
    raise Interruption


def _run_program():
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], check=True, capture_output=True)
    assert done.stdout.strip() == b"42", done.stdout


def _fork(models):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, sha256(parameters(models)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        seen = pipe.read()
    os.waitpid(child, 0)
    if seen != sha256(parameters(models)):
        raise RuntimeError("a forked child saw other parameters than its parent")


# ---------------------------------------------------------------- hashes


def parameters(models):
    for model in models:
        for _, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
            yield tensor


def optimizer_state(optimizers):
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for _, value in sorted(optimizer.state.get(parameter, {}).items()):
                    if value is not None:
                        yield value


def sha256(values):
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().reshape(-1).view(torch.uint8).numpy())
        else:
            digest.update(struct.pack("<d", value))
    return digest.hexdigest()


def processor_s():
    """Processor seconds of this program, its threads included, and of the kernel for it. "stolen_s": in which the host ran
    something else on this machine's processors, as the drive of a virtual machine."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/stat") as stat:
        stolen = int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    return {"user_s": usage.ru_utime, "system_s": usage.ru_stime, "stolen_s": stolen}


def peak_rss_kb():
    """Of this program alone: getrusage would count what ran before exec as well."""
    return int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
