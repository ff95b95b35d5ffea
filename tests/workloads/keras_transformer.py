"""A transformer (Vaswani et al., 2017; decoder only) that learns to go on with the source code of
Python's standard library, in Keras."""

import keras
import numpy as np
from keras import layers

import corpus
import keras_common as common


def block(x, hidden, heads, name):
    attended = layers.MultiHeadAttention(heads, hidden // heads, dropout=0.1, name=f"{name}_attention")(
        x, x, use_causal_mask=True)
    x = layers.LayerNormalization(name=f"{name}_norm1")(x + attended)
    wide = layers.Dense(4 * hidden, "gelu", name=f"{name}_widen")(x)
    narrow = layers.Dropout(0.1)(layers.Dense(hidden, name=f"{name}_narrow")(wide))
    return layers.LayerNormalization(name=f"{name}_norm2")(x + narrow)


def main():
    parser = common.options(__doc__, batch=8)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    common.begin(args)

    tokens, vocab = corpus.text(True, args.vocab)
    inputs = keras.Input((args.seq,), dtype="int32")
    places = layers.Embedding(args.seq, args.hidden, name="places")(np.arange(args.seq))
    x = layers.Embedding(vocab, args.hidden, name="words")(inputs) + places
    for number in range(args.layers):
        x = block(x, args.hidden, args.heads, f"block{number}")
    model = keras.Model(inputs, layers.Dense(vocab, name="decoder")(x), name="transformer")
    model.compile(keras.optimizers.AdamW(1e-4),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    common.Run(args).fit(model, common.passages(tokens, args.seq, args, lambda text: (text[:-1], text[1:])))


if __name__ == "__main__":
    main()
