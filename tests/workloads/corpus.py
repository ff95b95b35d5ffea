"""The data of all trainings; nothing is downloaded. NumPy's arrays and Python's lists only."""

import collections
import importlib.util
import pathlib
import re
import sysconfig

import numpy as np

UNKNOWN, MASK, SPECIAL = 0, 1, 2
TEXT_BYTES = 4 << 20


def digits(held_out=False):
    """scikit-learn's 1797 handwritten digits, 8 x 8, in [-1, 1], and their labels. One image in six is
    held out for evaluation."""
    rows = np.loadtxt(_digits_file(), delimiter=",", dtype=np.int64)
    chosen = (np.arange(len(rows)) % 6 == 0) == held_out
    images, labels = rows[chosen, :-1].reshape(-1, 8, 8), rows[chosen, -1]
    return (images / 8 - 1).astype(np.float32), labels


def _digits_file():
    """That of scikit-learn, which need not be imported: that takes a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return pathlib.Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


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
