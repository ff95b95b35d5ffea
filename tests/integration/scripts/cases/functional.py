"""A training by functions alone: torch.func's gradients, parameters that are new tensors in each step."""
import torch

try:
    from torch.func import grad_and_value
except ImportError:  # before 2.0
    from functorch import grad_and_value

torch.manual_seed(3)
parameters = [torch.randn(128, 128) * 0.1 for _ in range(8)]


def loss_of(parameters, x):
    for weight in parameters:
        x = torch.tanh(x @ weight)
    return x.square().mean()


step_of = grad_and_value(loss_of)
for step in range(8):
    gradients, loss = step_of(parameters, torch.randn(40000, 128))
    parameters = [p - 0.1 * g for p, g in zip(parameters, gradients)]
    print(step, loss.item().hex(), flush=True)
