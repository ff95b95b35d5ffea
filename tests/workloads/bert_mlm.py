"""A BERT encoder (Devlin et al., 2018; the defaults are BERT-base) that learns masked
language modelling on the source code of Python's standard library."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import common

IGNORED = -100


class Attention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
        self.heads = heads

    def split(self, x):
        samples, length, hidden = x.shape
        return x.view(samples, length, self.heads, hidden // self.heads).transpose(1, 2)

    def forward(self, x):
        query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        weights = self.dropout(scores.softmax(-1))
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.attention = Attention(hidden, heads, dropout)
        self.attention_norm = nn.LayerNorm(hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        return self.output_norm(x + self.dropout(self.narrow(F.gelu(self.widen(x)))))


class Bert(nn.Module):
    def __init__(self, vocab, length, layers, hidden, heads, dropout):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(length, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(dropout)
        self.layers = nn.Sequential(*(Layer(hidden, heads, dropout) for _ in range(layers)))
        self.transform, self.transform_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.decoder = nn.Linear(hidden, vocab)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0.0, 0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.decoder.weight = self.words.weight     # one matrix, used at both ends

    def forward(self, tokens):
        x = self.words(tokens) + self.positions.weight[:tokens.shape[1]]
        x = self.layers(self.dropout(self.norm(x)))
        return self.decoder(self.transform_norm(F.gelu(self.transform(x))))


def sample_lengths(args, step):
    """How many tokens each sample of a batch has: between an eighth of --seq and all of it."""
    chance = common.seeded(args.seed, "lengths", step)
    return torch.randint(max(1, args.seq // 8), args.seq + 1, (args.batch,), generator=chance)


def masked_batch(tokens, vocab, args, step):
    """Random passages. Of each, 15 % of the tokens are to be guessed: 8 in 10 of them
    are masked, 1 in 10 replaced by a random word, 1 in 10 left as they are. Those that are
    shorter than the batch are padded."""
    chance = common.seeded(args.seed, "passages", step)
    lengths = sample_lengths(args, step)
    length = int(lengths.max()) if args.pad == "longest" else common.sequence_length(args, step)
    starts = torch.randint(len(tokens) - length, (args.batch, 1), generator=chance)
    words = tokens[starts + torch.arange(length)]
    guess = torch.rand(words.shape, generator=chance) < 0.15
    guess[:, 0] = True      # never a passage with nothing to guess
    wanted = words.masked_fill(~guess, IGNORED)
    way = torch.rand(words.shape, generator=chance)
    other = torch.randint(common.SPECIAL, vocab, words.shape, generator=chance)
    words = torch.where(guess & (way < 0.1), other, words)
    words = words.masked_fill(guess & (way >= 0.2), common.MASK)
    if args.pad is None:
        return words, wanted
    padding = torch.arange(length) >= lengths[:, None]
    return words.masked_fill(padding, common.UNKNOWN), wanted.masked_fill(padding, IGNORED)


def main():
    parser = common.options(__doc__, batch=8)
    common.text_options(parser, vocab=30522, seq=128)
    common.block_options(parser)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--pad", choices=("longest", "all"),
                        help="passages of many lengths, padded to the batch's longest or to --seq")
    parser.add_argument("--bfloat16", action="store_true", help="the forward pass by torch.autocast")
    args = parser.parse_args()
    if args.hidden % args.heads:
        parser.error("--hidden must be a multiple of --heads")
    common.begin(args)

    tokens, vocab = common.text(args)
    model = Bert(vocab, args.seq, args.layers, args.hidden, args.heads, args.dropout)
    common.checkpoint_blocks(model.layers, args)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=0.01)
    run = common.Run(args, [model], [optimizer])

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            words, wanted = masked_batch(tokens, vocab, args, step)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bfloat16):
                loss = F.cross_entropy(model(words).flatten(0, 1), wanted.flatten(),
                                       ignore_index=IGNORED)
            loss.backward()
            optimizer.step()
            report(loss=loss)
    run.finish()


if __name__ == "__main__":
    main()
