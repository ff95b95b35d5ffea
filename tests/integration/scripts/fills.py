"""Trains with gradients that are filled in every way: whole, in part, through views, and by calls that are
refused. Prints each loss to the last bit, and a hash of the gradients and weights at the end."""
import argparse
import hashlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import eager


class Refusal(TorchDispatchMode):
    """Nothing may be written under it."""
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("refused")


def refused(call):
    try:
        call()
    except RuntimeError:
        return
    raise AssertionError("that should have been refused")


def main():
    eager.without_compiler()
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(1)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]  # 4 MiB each
    weights = [layer.weight for layer in layers]
    optimizer = torch.optim.Adam(weights)
    kept, large = torch.randn(3, 1024, 1024), torch.randn(4 << 20)
    for step in range(args.steps):
        optimizer.zero_grad(set_to_none=False)
        refused(weights[0].zero_)                      # autograd does not let it
        kept[0, :1].expand(3 * 1024, 1024).zero_()     # one row, as often as the storage has rows
        with Refusal():
            refused(kept.zero_)
        torch.from_numpy(large.numpy()[:1024]).zero_() # a storage of its own, at the same address
        value = torch.randn(64, 1024)
        for layer in layers:
            value = torch.relu(layer(value)) + value
        loss = value.square().mean() + kept.sum() * 1e-9
        loss.backward()
        with torch.no_grad():
            weights[1].grad[:512].zero_()              # the first half of a storage
            weights[2].grad.t().zero_()                # all of it, in another order
            kept[1].zero_()                            # the middle third
            kept[1].add_(step)
            weights[3].grad.zero_()
            weights[3].grad.add_(1e-3)
        optimizer.step()
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
    digest = hashlib.sha256()
    for tensor in [*weights, *(weight.grad for weight in weights), kept, large]:
        digest.update(tensor.detach().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
