"""A training without an optimizer: the parameters are updated in place, once a backward pass."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)])
for step in range(8):
    model.zero_grad()
    loss = model(torch.randn(40000, 128)).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-0.1)
    print(step, loss.item().hex())
