"""Trains a net with residual sums, a weight that is used twice, hooks and a gradient that is summed to its shape:
what autograd computes beside its nodes' own kernels. With ADAPTOR, as the tests build it (torchplugin/adaptor.cpp),
in the memory of their driver's library. Prints each loss to the last bit and a hash of the weights."""
import argparse
import contextlib
import ctypes
import hashlib
import os
import sys
import threading

import torch

WIDTH, BATCH, DEPTH = 512, 1024, 12
TEACHER_WIDTH = 384  # of no tensor beside
TOO_OFTEN = 1000  # that a batch would fit into the tests' device


def attach():
    global launches
    sys.path.insert(0, os.environ["PLACE"])
    from sentinel import _attach, _torch, _torch_gpu, _torch_replays
    core, adaptor = _attach.load_library(), ctypes.CDLL(os.environ["ADAPTOR"])
    assert _attach.start(core, lambda: adaptor.sentinel_torch_attach(1))
    if adaptor.sentinel_torch_may_replay():
        _torch_replays.tell(torch, adaptor)
    _torch._find_steps(torch, adaptor, _torch._Layers(torch, adaptor, None), None, None)
    _torch_gpu.split_optimizers(torch, core)
    _torch_gpu._refuse_collectives(torch, adaptor)
    _attach.watch_imports()
    launches = _torch_gpu.tell_launches(torch, adaptor)
    return core


# The second and third update all weights in one op, the last as the trainer of Hugging Face does.
OPTIMIZERS = {"sgd": lambda weights: torch.optim.SGD(weights, lr=1e-2, momentum=0.9),
              "sgd-foreach": lambda weights: torch.optim.SGD(weights, lr=1e-2, momentum=0.9, foreach=True),
              "adam-foreach": lambda weights: torch.optim.Adam(weights, lr=1e-3, amsgrad=True, foreach=True),
              "adamw-fused": lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.01, fused=True)}


class Shift(torch.autograd.Function):
    """Its backward leaves it to autograd to sum the second gradient over the batch."""
    @staticmethod
    def forward(context, value, by):
        return value + by

    @staticmethod
    def backward(context, gradient):
        return gradient, gradient


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(DEPTH))
        self.shift = torch.nn.Parameter(torch.zeros(width))
        self.middle = lambda value: None  # is given what the middle layer makes

    def forward(self, value):
        made = []
        for number, layer in enumerate([*self.layers, self.layers[0]]):
            value = torch.relu(layer(Shift.apply(value, self.shift))) + value
            value.register_hook(lambda gradient: gradient * 0.5)
            made.append(value)
            if number == DEPTH // 2:
                self.middle(value)
        for early in made:  # a part of each one's gradient comes first, and waits for the rest
            value = value + early * 0.5
        return value


class Chain(torch.nn.Sequential):
    """Of activations that are quickly made again, each from the one before."""
    def __init__(self, width):
        super().__init__(*(layer for _ in range(8) for layer in (
            torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width), torch.nn.ReLU(inplace=True))))


@contextlib.contextmanager
def on_device(number):
    """Tensors begin on that device, of the tests' two."""
    if "ADAPTOR" not in os.environ:
        yield
        return
    choose = ctypes.CDLL(os.environ["ADAPTOR"]).sentinel_torch_fake_device
    choose(number)
    yield
    choose(0)


class Teacher:
    """Is given what the net is, and what it makes is part of the loss. It may lie on a device of its own."""
    def __init__(self, device):
        self.device = device
        with on_device(device):
            self.weights = [torch.randn(WIDTH, TEACHER_WIDTH) / WIDTH, torch.randn(TEACHER_WIDTH, WIDTH) / WIDTH]

    @torch.no_grad()
    def __call__(self, value):
        with on_device(self.device):
            made = torch.tanh(value.clone() @ self.weights[0]) @ self.weights[1]
        return made.clone()


def run_out_of_memory(value):
    """In the program's thread now, and where the gradient is computed: an op's part that has no room is refused,
    and the step goes on."""
    refused = []

    def ask(tensor):
        try:
            tensor.repeat(TOO_OFTEN, 1)
        except torch.cuda.OutOfMemoryError as error:
            assert "under Sentinel: gpu0 has no room" in str(error), error
            refused.append(threading.current_thread())

    ask(value)
    value.register_hook(ask)
    return refused


def train(steps, backward, out_of_memory_in, teacher, width, batch_size, optimizer, zeroed=False, net=Net):
    model = net(width)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    for step in range(steps):
        refused = []
        runs_out = step == out_of_memory_in
        model.middle = lambda value, refused=refused, runs_out=runs_out: (
            refused.append(run_out_of_memory(value)) if runs_out else None)
        optimizer.zero_grad(set_to_none=not zeroed)
        batch = torch.randn(batch_size, width)
        made = model(batch)
        loss = (made - teacher(batch) if teacher else made).square().mean()
        del batch, made
        backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == out_of_memory_in:
            assert len(refused[0]) == 2, refused
            print("refused twice", file=sys.stderr)
        print(f"step {step} loss {float(loss.detach()).hex()}", flush=True)
    return model


def in_thread(call, *words):
    thread = threading.Thread(target=call, args=words)
    thread.start()
    thread.join()


def main():
    import eager  # not where a test runs another function of this file
    eager.without_compiler()
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--thread", choices=["none", "backward", "all"], default="none",
                        help="which part has a thread of its own; in `all` backward has another")
    parser.add_argument("--out-of-memory-in", type=int)
    parser.add_argument("--teacher-on", type=int, metavar="DEVICE")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--zeroed", action="store_true", help="gradients stay, and are zeroed")
    parser.add_argument("--chain", action="store_true", help="another net")
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    if args.deterministic:
        torch.set_deterministic_debug_mode("error")  # without what PyTorch's compiler has to be told
    core = attach() if "ADAPTOR" in os.environ else None
    torch.manual_seed(1)
    backward = torch.Tensor.backward if args.thread == "none" else lambda loss: in_thread(loss.backward)
    trained = []
    teacher = None if args.teacher_on is None else Teacher(args.teacher_on)
    work = lambda: trained.append(train(args.steps, backward, args.out_of_memory_in, teacher, args.width,
                                        args.batch, args.optimizer, args.zeroed,
                                        Chain if args.chain else Net))
    in_thread(work) if args.thread == "all" else work()
    if core:
        figures = (ctypes.c_size_t * 5)()
        core.sentinel_gpu_memory(1, figures, False)
        print("ops are wanted:", core.sentinel_wants_ops(), file=sys.stderr)
        print("on the other device:", *figures, file=sys.stderr)
        core.sentinel_unsupported(b"reading a tensor without an op")  # all comes back, and stays
    digest = hashlib.sha256()
    for parameter in trained[0].parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
