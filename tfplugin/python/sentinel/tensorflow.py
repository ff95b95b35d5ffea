"""Sentinel's marks for TensorFlow programs whose loop is a graph: each takes a tensor and gives it back,
and the call is made when the tensor is computed. What lies before and behind the mark is what the data
flow says. In a loop that runs step by step the functions of `sentinel` itself do.

    @tf.function
    def step(x):
        x = sentinel.tensorflow.add_layer(first(x))
        ...

All of it does nothing where the program does not run under Sentinel."""
import functools
import os

from . import _attach, _tensorflow


@functools.cache
def _ops():
    import tensorflow as tf
    folder = os.path.dirname(tf.__file__)
    build = _tensorflow.build_for(folder, _tensorflow.version_of(folder), "ops")
    ops = tf.load_op_library(build.find(_attach.load_library(), os.environ["SENTINEL_HOME"]).path)
    for name in ("SentinelStartProfile", "SentinelEndProfile", "SentinelAddLayer"):
        tf.RegisterGradient(name)(lambda op, gradient: gradient)
    return ops


def _mark(name, tensor):
    if not os.environ.get("SENTINEL_MODE"):
        return tensor
    return getattr(_ops(), name)(tensor)


def start_profile(tensor):
    """Counts page accesses from the computation of this tensor on."""
    return _mark("sentinel_start_profile", tensor)


def end_profile(tensor):
    """Ends the profile when this tensor has been computed, and writes it."""
    return _mark("sentinel_end_profile", tensor)


def add_layer(tensor):
    """Marks the end of a layer, whose output this tensor is; layers found by themselves are then
    ignored."""
    return _mark("sentinel_add_layer", tensor)
