"""A language model as PyTorch's own example trains it: no optimizer, `p.data` is updated in a loop, gradients are clipped,
and the hidden state is detached and goes on into the next batch."""
import sys

import torch

torch.manual_seed(2)
embed, rnn, head = torch.nn.Embedding(200, 64), torch.nn.LSTM(64, 64, 2), torch.nn.Linear(64, 200)
parameters = [p for module in (embed, rnn, head) for p in module.parameters()]
data, hidden = torch.randint(200, (9, 35, 160)), None
for step in range(8):
    if hidden is not None:
        hidden = tuple(h.detach() for h in hidden)
    for p in parameters:
        p.grad = None
    out, hidden = rnn(embed(data[step]), hidden)
    loss = torch.nn.functional.cross_entropy(head(out).flatten(0, 1), data[step + 1].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 0.25)
    for p in parameters:
        p.data.add_(p.grad, alpha=-0.5)
    print(step, loss.item().hex(), file=sys.stdout, flush=True)
