#!/usr/bin/env python3
"""Trains all weights of a GPT-2 with transformers' Trainer and AdamW, on the sources of Python's own library. An ordinary
script: it knows nothing of Sentinel, and downloads nothing (the weights are random).

    pip install torch transformers accelerate
    sentinel run --fast 25% -- python3 examples/finetune_gpt2.py --size small --steps 20
"""
import argparse
import hashlib
import json
import pathlib
import sysconfig
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

SIZES = {  # layers, width, heads: as published; the first one is for a try
    "tiny": (2, 128, 2),
    "small": (12, 768, 12),
    "medium": (24, 1024, 16),
    "large": (36, 1280, 20),
}


class Text(torch.utils.data.Dataset):
    """Python's library as bytes, in pieces of one length."""

    def __init__(self, pieces, length):
        sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = b"".join(source.read_bytes() for source in sources)[:pieces * length]
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().view(-1, length)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Times(TrainerCallback):
    """When each step ended."""

    def __init__(self):
        self.ends = []

    def on_train_begin(self, *_, **__):
        self.ends = [time.perf_counter()]

    def on_step_end(self, *_, **__):
        self.ends.append(time.perf_counter())

    def seconds(self):
        return [after - before for before, after in zip(self.ends, self.ends[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256, help="tokens in each of a batch")
    parser.add_argument("--checkpointing", action="store_true", help="activations are computed twice instead of kept")
    parser.add_argument("--deepspeed", help="DeepSpeed's configuration, a JSON file")
    parser.add_argument("--json", type=pathlib.Path, help="a record: losses, seconds, a hash of the weights")
    args = parser.parse_args()

    torch.manual_seed(1)
    layers, width, heads = SIZES[args.size]
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, use_cache=False))
    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model, train_dataset=Text(args.batch * args.steps, args.length), callbacks=[times],
            args=TrainingArguments(
                output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.steps, learning_rate=1e-4,
                gradient_checkpointing=args.checkpointing, use_cpu=True, logging_steps=1, save_strategy="no",
                report_to=[], deepspeed=args.deepspeed, disable_tqdm=True, seed=1, dataloader_pin_memory=False))
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    seconds = times.seconds()
    settled = sorted(seconds[len(seconds) // 2:])
    print(f"{len(seconds)} steps, {args.batch * args.length / settled[len(settled) // 2]:.1f} tokens/s, "
          f"last loss {losses[-1]:.6f}")
    if args.json:
        digest = hashlib.sha256()
        for weight in model.parameters():
            digest.update(weight.detach().numpy())
        args.json.write_text(json.dumps({"losses": losses, "seconds": seconds, "weights_sha256": digest.hexdigest(),
                                         "parameters": model.num_parameters()}) + "\n")


if __name__ == "__main__":
    main()
