"""The data of all trainings; nothing is downloaded. NumPy's arrays and Python's lists only."""

import collections
import pathlib
import re
import sysconfig

import numpy as np

UNKNOWN, MASK, SPECIAL = 0, 1, 2
TEXT_BYTES = 4 << 20


def digits(held_out=False):
    """scikit-learn's 1797 handwritten digits, 8 x 8, in [-1, 1], and their labels. One image in six is
    held out for evaluation."""
    from sklearn.datasets import load_digits
    data = load_digits()
    chosen = (np.arange(len(data.target)) % 6 == 0) == held_out
    return (data.images[chosen] / 8 - 1).astype(np.float32), data.target[chosen]


def text(words, vocab):
    """Python's own standard library as tokens, and the size of the vocabulary: words, ranked by frequency
    (rarer ones become UNKNOWN), or bytes."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    raw = b"".join(file.read_bytes() for file in sorted(library.glob("*.py")))[:TEXT_BYTES]
    if not words:
        return [SPECIAL + byte for byte in raw], 256 + SPECIAL
    found = re.findall(rb"\w+|[^\w\s]", raw)
    ranked = sorted(collections.Counter(found).items(), key=lambda item: (-item[1], item[0]))
    number = {word: SPECIAL + rank for rank, (word, _) in enumerate(ranked[:vocab - SPECIAL])}
    return [number.get(word, UNKNOWN) for word in found], vocab
