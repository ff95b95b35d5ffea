"""A small training that compiles what it runs, as a user would. Prints each loss and a digest of the weights, to the
last bit."""
import argparse
import ctypes
import hashlib
import pathlib
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        heads = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.wide(self.norm(x)).chunk(3, -1))
        q, k, v = heads
        weights = (q @ k.transpose(-1, -2) / q.shape[-1]**0.5).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).flatten(2)
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Words(nn.Module):
    """An LSTM, written out: PyTorch's own is one op, which Dynamo does not compile."""

    def __init__(self, width):
        super().__init__()
        self.into, self.again = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], x.shape[2])
        into = self.into(x)
        for at in range(x.shape[1]):
            i, f, g, o = (into[:, at] + self.again(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


def cnn(width, depth):
    layers = []
    for at in range(depth):
        layers += [nn.Conv2d(width if at else 3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 8))


def mlp(width, depth):
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 8))


def transformer(width, depth):
    return nn.Sequential(*(Block(width) for _ in range(depth)), nn.Flatten(), nn.LazyLinear(8))


def lstm(width, depth):
    return nn.Sequential(Words(width), nn.Linear(width, 8))


# Per model: what makes it, width, depth, the batch, an input's shape.
MODELS = {"cnn": (cnn, 16, 5, 64, (3, 48, 48)), "mlp": (mlp, 1536, 3, 64, (64,)),
          "transformer": (transformer, 128, 3, 64, (64, 128)), "lstm": (lstm, 512, 1, 192, (12, 512))}


def adam(weight, gradient, mean, square):
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    weight.sub_(1e-3 * mean / (square.sqrt() + 1e-8))


def updates(args, model, options):
    """What updates the weights after a backward pass: by hand and compiled, or an optimizer, whose step may be."""
    if args.update == "by hand":
        moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
        compiled = torch.compile(adam, dynamic=False, **options)

        def update():
            with torch.no_grad():
                for weight, mean, square in moments:
                    compiled(weight, weight.grad, mean, square)
            model.zero_grad()

        return update
    optimizer = torch.optim.Adam(model.parameters()) if args.update == "compiled" else \
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = torch.compile(lambda: optimizer.step(), **options) if args.update == "compiled" else optimizer.step

    def update():
        step()
        optimizer.zero_grad()

    return update


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--update", choices=["optimizer", "by hand", "compiled"], default="optimizer")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--option", action="append", default=[], help="of Inductor's, that is on")
    parser.add_argument("--batches", type=int, nargs="+", help="in turns, from one step to the next")
    parser.add_argument("--width", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--batch", type=int)
    args = parser.parse_args()

    torch.manual_seed(1)
    make, width, depth, batch, shape = MODELS[args.model]
    model, batches = make(args.width or width, args.depth or depth), args.batches or [args.batch or batch]
    if args.backend == "unknown":
        torch._dynamo.register_backend(lambda graph, inputs: graph.forward, name="unknown")
    options = {"backend": args.backend}
    if "cpp_wrapper" in args.option:  # PyTorch 2.13's does not find its own functions without
        ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
    if args.option:
        options["options"] = {name: True for name in args.option}
    if args.model in ("lstm", "transformer") and args.width:
        shape = (shape[0], args.width)
    with torch.no_grad():
        model(torch.zeros(1, *shape))  # what is lazy has its size from now on
    forward, update = torch.compile(model, dynamic=False, **options), updates(args, model, options)
    for step in range(args.steps):
        begin = time.perf_counter()
        count = batches[step // 4 % len(batches)]
        loss = (forward(torch.randn(count, *shape)) - torch.randn(count, 8)).square().mean()
        loss.backward()
        update()
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
        print(f"step {step}: {1e3 * (time.perf_counter() - begin):.1f} ms", file=sys.stderr)
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().numpy().tobytes())
    print("weights", digest.hexdigest())


if __name__ == "__main__":
    main()
