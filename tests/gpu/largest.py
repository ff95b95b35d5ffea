"""The largest batch that trains within a fixed budget: plain PyTorch limited to it, and Sentinel with it."""
import sys
import time

import bounded
import search
from compare import training

LONGEST = 180  # seconds for a model
STEPS = 8  # some by demand, one profiled, some by a plan
WITHIN = 4  # Sentinel's answer is less than a quarter too small; plain PyTorch's less than a sixteenth


def chosen(args):
    """What all rows have in common."""
    return {"largest batch's size": args.largest_size, "steps of its": STEPS, "limit": args.limit}


def answer(ended):
    """What a search has found; whether it was over."""
    batch = search.found(ended.err)
    if ended.status is None:
        return {"batch": batch or 0, "over": False}
    return {"batch": batch, "over": True} if batch and ended.status == 0 else {"failure": ended.reason()}


def of_model(args, model, seconds):
    begin = time.monotonic()
    words = training(args, model, "--steps", STEPS, size=args.largest_size)
    plain = answer(bounded.run([*words, "--largest", "--limit", str(args.limit)], seconds / 3))
    fit = [args.sentinel, "fit", "--tiers", "fast=gpu0,slow=host", "--gpu-memory", args.gpu_memory, "--fast",
           str(args.limit), "--quiet", "--from", str(plain.get("batch") or 1), "--within", str(WITHIN), "--", *words,
           "--batch", "{}"]
    ours = answer(bounded.run(fit, begin + seconds - time.monotonic()))
    return {"limit_bytes": args.limit, "size": args.largest_size, "plain": plain, "sentinel": ours}


def over(row):
    return all(row[who].get("over") for who in ("plain", "sentinel"))


def missing(args, results):
    rows = results.data["largest"]
    return [model for model in args.largest if model not in rows or not over(rows[model])]


def measure(args, results, deadline):
    """What is missing, one model after the other."""
    rows = results.data["largest"]
    for model in missing(args, results):
        left = min(deadline - time.monotonic(), LONGEST)
        if left <= 0:
            break
        print(f"{model}: largest batch", file=sys.stderr, flush=True)
        results.put(of_model(args, model, left), "largest", model)
    return [f"largest batch of {model}: {rows[model]['sentinel']['failure']}" for model in args.largest
            if model in rows and "failure" in rows[model]["sentinel"]]


def add_options(parser):
    parser.add_argument("--largest", type=lambda text: [one for one in text.split(",") if one],
                        default=["BERT-large", "ViT", "ResNet-152", "GPT-2", "DCGAN"],
                        help="models whose largest batch is looked for; none: ''")
    parser.add_argument("--largest-size", default="small")
    parser.add_argument("--limit", type=int, default=4 << 30, help="bytes that the largest batch is to train in")
