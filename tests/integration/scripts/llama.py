"""A Llama-like model of 6.7 billion parameters, trained by AdamW; prints the largest resident memory in bytes."""
import pathlib
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN, HEADS, WIDE, VOCAB, LENGTH = 4096, 32, 11008, 32000, 2048


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide_norm = RMSNorm(), RMSNorm()
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(HIDDEN, WIDE, bias=False) for _ in range(2))
        self.down = nn.Linear(WIDE, HIDDEN, bias=False)

    def split(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x, turn):
        y = self.norm(x)
        query, key, value = (self.split(part(y)) for part in (self.query, self.key, self.value))
        query, key = query * turn, key * turn
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.wide_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.words = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = RMSNorm(), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        turn = torch.arange(tokens.shape[1]).outer(torch.arange(HIDDEN // HEADS)).cos()
        for layer in self.layers:
            x = layer(x, turn)
        return self.head(self.norm(x))


model = Llama(int(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(VOCAB, (2, LENGTH))
    optimizer.zero_grad()
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    print(sum(each.numel() for each in model.parameters()),
          int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10, flush=True)
