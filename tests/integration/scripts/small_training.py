"""A small training that ends as it is told: --end HOW in the middle of step --at. Prints each loss to
the last bit; --open-files prints, on stderr, what the process has open at the end."""
import argparse
import os
import pathlib
import signal
import sys
import time

import torch

import eager


def end(how):
    if how == "abort":
        os.abort()
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    if how == "kill":
        time.sleep(1.2)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "error":
        raise RuntimeError("the training has a fault")
    if how == "wait":
        print("waiting", flush=True)
        time.sleep(60)


def main():
    eager.without_compiler()
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--end", default="well")
    parser.add_argument("--at", type=int, default=3)
    parser.add_argument("--open-files", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    middle = torch.nn.Linear(args.width, args.width)
    model = torch.nn.Sequential(torch.nn.Linear(64, args.width), torch.nn.ReLU(), middle, torch.nn.ReLU(),
                                torch.nn.Linear(args.width, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(args.steps):
        handle = middle.register_forward_hook(lambda *_: end(args.end)) if step == args.at else None
        optimizer.zero_grad()
        loss = model(torch.randn(512, 64)).square().mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
        if handle is not None:
            handle.remove()
    if args.open_files:
        for file in pathlib.Path("/proc/self/fd").iterdir():
            try:
                print("open", os.readlink(file), file=sys.stderr)
            except OSError:
                pass


if __name__ == "__main__":
    main()
