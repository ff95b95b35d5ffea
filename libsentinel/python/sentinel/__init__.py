"""Sentinel from Python: marks for programs that want to say themselves what is a layer, a step, or
the step to profile. All of it does nothing where the program does not run under Sentinel."""
import contextlib
import ctypes
import os
import sys

_library = None


def _lib():
    global _library
    if _library is None:
        path = os.environ.get("SENTINEL_LIBRARY", "libsentinel.so")
        try:
            _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            return None
        _library.sentinel_last_error.restype = ctypes.c_char_p
    return _library


def _call(name):
    if os.environ.get("SENTINEL_MODE") == "trace":  # there is no library in the process
        attach = sys.modules.get("sentinel._attach")
        if attach is not None and name in attach.marks:
            attach.marks[name]()
        return
    library = _lib()
    if library is None or not os.environ.get("SENTINEL_MODE"):
        return
    code = getattr(library, name)()
    if code != 0:
        raise OSError(-code, library.sentinel_last_error().decode())


def start_profile():
    """Counts page accesses from here on. Raises OSError if a profile has been started."""
    _call("sentinel_start_profile")
    attach = sys.modules.get("sentinel._attach")
    for tell in attach.profile_begins if attach else ():
        tell()


def end_profile():
    """Ends the profile and writes it. Raises OSError if none was started."""
    _call("sentinel_end_profile")


def add_layer():
    """Marks the end of a layer; layers found by themselves are then ignored."""
    _call("sentinel_add_layer")


def step():
    """Marks the end of a training step, where no optimizer of the framework does."""
    _call("sentinel_step")


def forget_stream(stream):
    """Before the program destroys a CUDA stream that it made itself (a `cudaStream_t`, as
    `torch.cuda.ExternalStream` takes it, or that object). PyTorch's own streams are never destroyed."""
    library = _lib()
    if library is not None and os.environ.get("SENTINEL_MODE"):
        library.sentinel_forget_stream(ctypes.c_void_p(getattr(stream, "cuda_stream", stream)))


@contextlib.contextmanager
def profile():
    """`with sentinel.profile():` around the step to profile."""
    start_profile()
    try:
        yield
    finally:
        end_profile()
