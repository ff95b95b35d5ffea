"""A word-level LSTM language model (Zaremba et al., 2014; "large": two layers of 1500)
on the source code of Python's standard library."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import common


class LanguageModel(nn.Module):
    def __init__(self, vocab, hidden, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.drop_in = nn.Dropout(dropout)
        self.lstm = nn.LSTM(hidden, hidden, layers, dropout=dropout if layers > 1 else 0.0)
        self.drop_out = nn.Dropout(dropout)
        self.decoder = nn.Linear(hidden, vocab)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.04, 0.04)

    def forward(self, tokens, state):
        out, state = self.lstm(self.drop_in(self.embedding(tokens)), state)
        return self.decoder(self.drop_out(out)), state


def columns(tokens, batch):
    """The text cut into as many equal columns as a batch has samples, read in parallel."""
    length = len(tokens) // batch
    return tokens[:length * batch].view(batch, length).t().contiguous()


def main():
    parser = common.options(__doc__, batch=20)
    common.text_options(parser, vocab=10000, seq=35)
    parser.add_argument("--hidden", type=int, default=1500)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=5.0, help="largest gradient norm")
    args = parser.parse_args()
    common.begin(args)

    tokens, vocab = common.text(args)
    data = columns(tokens, args.batch)
    places = (len(data) - 1) // args.seq
    if places < 1:
        raise SystemExit("the text is too short for --batch times --seq tokens")
    model = LanguageModel(vocab, args.hidden, args.layers, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    run = common.Run(args, [model], [optimizer])

    for step in range(run.first, args.steps):
        with run.step(step) as report:
            start = step % places * args.seq
            length = common.sequence_length(args, step)
            words, following = data[start:start + length], data[start + 1:start + 1 + length]

            # The state goes on from step to step, the gradient does not.
            state = None if start == 0 else run.carry.get("state")
            optimizer.zero_grad()
            answers, state = model(words, state)
            loss = F.cross_entropy(answers.flatten(0, 1), following.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            run.carry["state"] = tuple(part.detach() for part in state)
            report(loss=loss)
    run.finish()


if __name__ == "__main__":
    main()
