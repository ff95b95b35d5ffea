"""What the Keras trainings share: options, data, and a record of the run, as common.py has them for
PyTorch. A script reads like any Keras training: it builds and compiles a model, asks here for a dataset,
and calls fit() with the callback that keeps the record."""

import argparse
import hashlib
import json
import os
import pathlib
import re
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import corpus


def options(description, batch, steps=10):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch", type=int, default=batch, help="samples a step")
    parser.add_argument("--steps", type=int, default=steps, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))),
                        help="threads of one operator")
    parser.add_argument("--inter-op", type=int, default=1, help="operators at the same time")
    parser.add_argument("--images", type=int, help="images or passages an epoch; repeated where fewer")
    parser.add_argument("--last-batch", action="store_true", help="keep each epoch's smaller last batch")
    parser.add_argument("--xla", action="store_true", help="let XLA compile the step; not deterministic")
    parser.add_argument("--json", metavar="FILE", help="write the record of the run here")
    return parser


def begin(args):
    """Threads, seeds, deterministic operators."""
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.inter_op)
    keras.utils.set_random_seed(args.seed)
    if not args.xla:
        tf.config.experimental.enable_op_determinism()


def digits(size, args):
    """Shuffled batches without end of scikit-learn's handwritten digits, size x size x 3, in [-1, 1]."""
    images, labels = corpus.digits()

    def enlarge(image, label):
        image = tf.image.resize(image[..., None], (size, size))
        return tf.repeat(image, 3, axis=-1), label

    return _epochs(tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int32))), args, enlarge)


def passages(tokens, length, args, finish):
    """Shuffled batches without end of passages of the text; finish(passage) makes input and target."""
    starts = np.arange(0, len(tokens) - length - 1, length)
    text = tf.constant(tokens, tf.int32)
    return _epochs(tf.data.Dataset.from_tensor_slices(starts), args,
                   lambda start: finish(text[start:start + length + 1]))


def _epochs(dataset, args, prepare):
    if args.images:
        dataset = dataset.repeat().take(args.images)
    dataset = dataset.shuffle(4096, seed=args.seed).map(prepare, num_parallel_calls=2)
    return dataset.batch(args.batch, drop_remainder=not args.last_batch).repeat().prefetch(2)


class Run(keras.callbacks.Callback):
    """The record of one training: prints the steps, keeps losses to the last bit."""

    def __init__(self, args, *names):
        super().__init__()
        self.args, self.names = args, names or ("loss",)
        self.record = {"steps": []}

    def on_train_batch_begin(self, batch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        entry = {"step": len(self.record["steps"])}
        entry |= {name: float(logs[name]).hex() for name in self.names}
        entry["ms"] = round((time.perf_counter() - self.start) * 1000, 3)
        self.record["steps"].append(entry)
        values = "  ".join(f"{name} {float.fromhex(entry[name]):.6f}" for name in self.names)
        print(f"step {entry['step']:4}  {values}  {entry['ms']:.1f} ms", flush=True)

    def fit(self, model, dataset):
        if self.args.xla:
            model.jit_compile = True
        model.fit(dataset, steps_per_epoch=self.args.steps, epochs=1, verbose=0, callbacks=[self])
        return self.finish([model], [model.optimizer])

    def finish(self, models, optimizers):
        self.record["params_sha256"] = _sha256(models)
        self.record["optimizer_sha256"] = _sha256(optimizers)
        status = pathlib.Path("/proc/self/status").read_text()
        self.record["peak_rss_kb"] = int(re.search(r"VmHWM:\s*(\d+)", status)[1])
        print(f"parameters {self.record['params_sha256'][:16]}  "
              f"optimizer {self.record['optimizer_sha256'][:16]}  "
              f"peak {self.record['peak_rss_kb'] / 1024:.0f} MB")
        if self.args.json:
            pathlib.Path(self.args.json).write_text(json.dumps(self.record, indent=1) + "\n")


def _sha256(owners):
    digest = hashlib.sha256()
    for owner in owners:
        for variable in owner.variables:
            if "seed" not in variable.path:  # a counter of Keras', of no fixed size
                digest.update(np.ascontiguousarray(variable.numpy()))
    return digest.hexdigest()
