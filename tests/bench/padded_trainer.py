#!/usr/bin/env python3
"""transformers' Trainer with a small BERT from scratch and token lists of many lengths, padded to each batch's longest
or all to the longest there is. Needs PyTorch 2.x, transformers and accelerate; downloads nothing.

    padded_trainer.py --pad longest --steps 200 --json FILE

tests/bench/README.md says how its figures are made. The record holds each step's loss to the last bit.
"""
import argparse
import json
import pathlib
import tempfile

import torch
from tokenizers import Tokenizer, models
from transformers import (BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast,
                          Trainer, TrainingArguments)

VOCABULARY = 8000


class Recorded(Trainer):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.losses, self.lengths = [], []

    def training_step(self, model, inputs, *args, **options):
        self.lengths.append(inputs["input_ids"].shape[1])
        loss = super().training_step(model, inputs, *args, **options)
        self.losses.append(loss.item().hex())
        return loss


def samples(count, longest, seed):
    """Token lists of an eighth of the longest length up to it, and a label that the tokens tell."""
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(max(2, longest // 8), longest + 1, (count,), generator=chance).tolist()
    for length in lengths:
        tokens = torch.randint(3, VOCABULARY, (length,), generator=chance).tolist()
        yield {"input_ids": tokens, "labels": int(sum(tokens) % 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pad", choices=("longest", "all"), default="longest")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="of the longest token list")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()

    words = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")),
                                        pad_token="[PAD]", unk_token="[UNK]", model_max_length=args.length)
    padding = "longest" if args.pad == "longest" else "max_length"
    torch.manual_seed(args.seed)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCABULARY, hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=4,
        intermediate_size=4 * args.hidden, max_position_embeddings=args.length))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Recorded(
            model=model, train_dataset=list(samples(args.batch * args.steps, args.length, args.seed)),
            data_collator=DataCollatorWithPadding(tokenizer, padding=padding, max_length=args.length),
            args=TrainingArguments(output_dir=folder, per_device_train_batch_size=args.batch, max_steps=args.steps,
                                   use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no",
                                   disable_tqdm=True, seed=args.seed, dataloader_pin_memory=False))
        trainer.train()
    print(f"{len(trainer.losses)} steps, lengths {min(trainer.lengths)} to {max(trainer.lengths)}, "
          f"{len(set(trainer.lengths))} different; last loss {float.fromhex(trainer.losses[-1]):.6f}")
    if args.json:
        args.json.write_text(json.dumps({"losses": trainer.losses, "lengths": trainer.lengths}) + "\n")


if __name__ == "__main__":
    main()
