"""The largest batch that trains, looked for as `sentinel fit` does; and what such a search tells while it goes on."""
import re


def largest(trains, most, within=16):
    """Less than a `within`-th too small; 0 where not even one sample trains. `trains(batch)` says whether it does."""
    good, bad = 0, None
    while bad is None and good < most:
        batch = min(most, max(1, 2 * good))
        if trains(batch):
            good = batch
        else:
            bad = batch
    while bad is not None and good and bad - good > max(1, good // within):
        batch = (good + bad) // 2
        if trains(batch):
            good = batch
        else:
            bad = batch
    return good


def told(batch, good):
    return f"batch {batch} {'trains' if good else 'fails'}"


def found(lines):
    """The largest that trained by what was told, in the words of `sentinel fit` too; None if none did."""
    return max(map(int, re.findall(r"batch (\d+) trains", lines)), default=None)
