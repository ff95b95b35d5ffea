"""Keeps what tests compile, from one run to the next and for all workers of a run. Its name is made of all that it
depends on."""
import contextlib
import fcntl
import hashlib
import os
import pathlib


def folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = pathlib.Path(cache) / "sentinel" / "tests"
    place.mkdir(parents=True, exist_ok=True)
    return place


def once(name, parts, make):
    """The path of a file. `make(path)` writes it where there is none yet; `parts`: texts, or files whose contents
    count."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, pathlib.Path) else str(part).encode())
        digest.update(b"\0")
    stem, suffix = os.path.splitext(name)
    kept = folder() / f"{stem}-{digest.hexdigest()[:16]}{suffix}"
    with open(folder() / "lock", "w") as lock, contextlib.ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            partial = kept.with_name(f"{kept.name}.{os.getpid()}")
            stack.callback(partial.unlink, missing_ok=True)
            make(partial)
            os.replace(partial, kept)
    return kept
