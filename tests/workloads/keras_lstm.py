"""A word-level LSTM language model on the source code of Python's standard library, in Keras."""

import keras
from keras import layers

import corpus
import keras_common as common


def main():
    parser = common.options(__doc__, batch=32)
    parser.add_argument("--vocab", type=int, default=10000)
    parser.add_argument("--seq", type=int, default=35)
    parser.add_argument("--hidden", type=int, default=650)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args()
    common.begin(args)

    tokens, vocab = corpus.text(True, args.vocab)
    model = keras.Sequential([keras.Input((args.seq,), dtype="int32"),
                              layers.Embedding(vocab, args.hidden, name="embedding")], name="lstm")
    for number in range(args.layers):
        model.add(layers.LSTM(args.hidden, return_sequences=True, name=f"lstm{number}"))
        model.add(layers.Dropout(0.5))
    model.add(layers.Dense(vocab, name="decoder"))
    model.compile(keras.optimizers.Adam(1e-3, clipnorm=5.0),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    common.Run(args).fit(model, common.passages(tokens, args.seq, args, lambda text: (text[:-1], text[1:])))


if __name__ == "__main__":
    main()
