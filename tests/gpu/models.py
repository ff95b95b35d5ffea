"""Five models of the kinds that outgrow a GPU, from torch.nn alone: ResNet-152, BERT-large, a GPT-2-like decoder,
ViT and DCGAN. `build(name, batch, device, size)` makes the model, the loss of one step on data drawn by a seed, and
the blocks that activation checkpointing computes again. All is deterministic on a device, too: no max pooling, whose
backward pass is not."""
import contextlib
import dataclasses
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Task:
    model: nn.Module
    loss: Callable  # of a step's number
    optimizer: torch.optim.Optimizer
    blocks: list  # modules that are repeated


# ---------------------------------------------------------------- ResNet-152 (He et al., 2016)


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        changes = stride != 1 or inner != 4 * width
        self.short = nn.Sequential(nn.Conv2d(inner, 4 * width, 1, stride, bias=False),
                                   nn.BatchNorm2d(4 * width)) if changes else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet(depths, width, classes):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
              nn.Conv2d(width, width, 3, 2, 1, bias=False)]
    inner = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inner, width << stage, 2 if block == 0 and stage > 0 else 1))
            inner = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


# ---------------------------------------------------------------- transformers


class Block(nn.Module):
    """Attention written out, so that it is deterministic and its memory is the published models'."""

    def __init__(self, hidden, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.project, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def attention(self, x):
        batch, length, hidden = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.project(x).split(hidden, -1))
        scores = q @ k.transpose(-1, -2) * (hidden // self.heads) ** -0.5
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, hidden))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))


class Language(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, length, causal):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads, causal) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.last(self.blocks(self.words(tokens) + self.places(places))))


class Vision(nn.Module):
    def __init__(self, layers, hidden, heads, patch, side, classes):
        super().__init__()
        self.cut = nn.Conv2d(3, hidden, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, hidden) * 0.02)
        self.blocks = nn.Sequential(*(Block(hidden, heads, False) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, images):
        x = self.cut(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.last(self.blocks(x)).mean(1))


# ---------------------------------------------------------------- DCGAN (Radford et al., 2016)


class Gan(nn.Module):
    def __init__(self, width, noise=100):
        super().__init__()
        self.noise = noise
        up, down, inner = [], [], noise
        for i, outer in enumerate((8 * width, 4 * width, 2 * width, width)):
            up.append(nn.Sequential(
                nn.ConvTranspose2d(inner, outer, 4, 1 if i == 0 else 2, 0 if i == 0 else 1, bias=False),
                nn.BatchNorm2d(outer), nn.ReLU()))
            inner = outer
        self.draw = nn.Sequential(*up, nn.ConvTranspose2d(inner, 3, 4, 2, 1), nn.Tanh())
        inner = 3
        for outer in (width, 2 * width, 4 * width, 8 * width):
            down.append(nn.Sequential(nn.Conv2d(inner, outer, 4, 2, 1, bias=False), nn.BatchNorm2d(outer),
                                      nn.LeakyReLU(0.2)))
            inner = outer
        self.judge = nn.Sequential(*down, nn.Conv2d(inner, 1, 4), nn.Flatten())
        self.blocks = [*up, *down]


# ---------------------------------------------------------------- tasks


_drawn = {}
VARIANTS = 4  # of a step's data


def draw(number, *shape, high=None, device=None):
    """The same data in every run: drawn on the processor by the step's number, once, and copied in each step."""
    key = number % VARIANTS, shape, high
    if key not in _drawn:
        generator = torch.Generator().manual_seed(1000 + key[0])
        data = (torch.randn(shape, generator=generator) if high is None
                else torch.randint(high, shape, generator=generator))
        _drawn[key] = data.pin_memory() if device != "cpu" else data
    return _drawn[key].to(device, non_blocking=True)


def classifier(model, batch, side, classes, device):
    def loss(number):
        labels = draw(number, batch, high=classes, device=device)
        return F.cross_entropy(model(draw(number, batch, 3, side, side, device=device)), labels)
    return loss


def language(model, batch, length, vocabulary, causal, device):
    def loss(number):
        tokens = draw(number, batch, length + 1, high=vocabulary, device=device)
        wanted = tokens[:, 1:] if causal else tokens[:, :-1]  # the next word, or the masked one
        seen = tokens[:, :-1]
        if not causal:
            masked = draw(number + 1, batch, length, high=7, device=device) == 0
            seen = seen.masked_fill(masked, 0)
        return F.cross_entropy(model(seen).flatten(0, 1), wanted.flatten())
    return loss


def gan(model, batch, device):
    def loss(number):
        real = draw(number, batch, 3, 64, 64, device=device)
        made = model.draw(draw(number + 1, batch, model.noise, 1, 1, device=device))
        judged = F.softplus(-model.judge(real)).mean() + F.softplus(model.judge(made.detach())).mean()
        return judged + F.softplus(-model.judge(made)).mean()
    return loss


BATCHES = {"ResNet-152": 32, "BERT-large": 12, "GPT-2": 3, "ViT": 32, "DCGAN": 1024}  # of the full size: 10 to 16 GB
SIZES = ("full", "small", "tiny")  # small: weights that leave room in 4 GiB; tiny: for a test of this file


def make(name, batch, device, size):
    """The model, its loss and its blocks."""
    def sized(full, small, tiny):
        return {"full": full, "small": small, "tiny": tiny}[size]

    side = sized(224, 224, 32)
    layers, hidden, heads = sized((24, 1024, 16), (12, 512, 8), (2, 32, 2))
    if name == "ResNet-152":
        model = resnet(sized((3, 8, 36, 3), (3, 4, 6, 3), (1, 1, 1, 1)), sized(64, 64, 8), 1000)
        blocks = [one for one in model if isinstance(one, Bottleneck)]
        return model, classifier(model, batch, side, 1000, device), blocks
    if name in ("BERT-large", "GPT-2"):
        causal = name == "GPT-2"
        length = sized(*((1024, 512, 16) if causal else (384, 384, 16)))
        vocabulary = sized(*((50257, 50257, 100) if causal else (30522, 30522, 100)))
        model = Language(layers, hidden, heads, vocabulary, length, causal)
        return model, language(model, batch, length, vocabulary, causal, device), list(model.blocks)
    if name == "ViT":
        model = Vision(layers, hidden, heads, 16, side, 1000)
        return model, classifier(model, batch, side, 1000, device), list(model.blocks)
    model = Gan(sized(128, 64, 8))
    return model, gan(model, batch, device), model.blocks


def build(name, batch, device, size="full"):
    """Parameters are drawn where they lie: by one device as in every run on it."""
    torch.manual_seed(1)
    with contextlib.nullcontext() if device == "cpu" else torch.device(device):
        model, loss, blocks = make(name, batch, device, size)
    if name in ("ResNet-152", "DCGAN"):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)
    else:  # one parameter after the other: an op that names all of them would need all of them at once
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    return Task(model, loss, optimizer, blocks)
