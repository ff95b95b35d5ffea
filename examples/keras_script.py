# SPDX-License-Identifier: Apache-2.0
"""An ordinary Keras training that knows nothing of Sentinel.

    python3 examples/keras_script.py                                        plain
    sentinel record -o keras.sentinel -- python3 examples/keras_script.py   which layer made which tensor on the CPU
    sentinel run --fast 30% -- python3 examples/keras_script.py             in 30 % of its memory

It needs `pip install tensorflow-cpu`, 2.21 or later.
"""
import argparse

import keras
import numpy
import tensorflow

parser = argparse.ArgumentParser(description="A small Keras training, to run under Sentinel.")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--batch", type=int, default=2048)
args = parser.parse_args()

# The same numbers in every run: one seed, operators that give the same bits, and one operator at a time.
keras.utils.set_random_seed(1)
tensorflow.config.experimental.enable_op_determinism()
tensorflow.config.threading.set_inter_op_parallelism_threads(1)

model = keras.Sequential([keras.Input((512,)),
                          *(keras.layers.Dense(512, "tanh", name=f"dense{n}") for n in range(16)),
                          keras.layers.Dense(10, name="head")])
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

random = numpy.random.default_rng(1)
images = random.normal(size=(args.steps * args.batch, 512)).astype("float32")
labels = random.integers(10, size=args.steps * args.batch)


class Losses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print(f"step {batch}  loss {logs['loss']:.9f}")


model.fit(images, labels, batch_size=args.batch, shuffle=False, verbose=0, callbacks=[Losses()])
