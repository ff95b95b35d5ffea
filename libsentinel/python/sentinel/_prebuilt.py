"""Adaptors that were compiled before Sentinel was installed. A description beside each (NAME.json) has the framework's
release and C++ ABI, and a digest of those of the framework's headers that its compiler read. An adaptor fits where all
three are the same: compiling here would give this very library. The description is there before its adaptor is."""
import contextlib
import fcntl
import hashlib
import json
import os
import stat

_OTHERS_WRITE = 0o022
_OF_PATCH_RELEASES = ("version.h",)  # they hold a number that no adaptor uses


class Headers:
    """Those of a framework: the folder that they are in, and what their paths begin with in there."""

    def __init__(self, folder, beginnings=("",)):
        self.folder, self.beginnings = os.path.realpath(folder), beginnings

    def among(self, paths):
        """Those of these paths that are the framework's, as paths in its folder."""
        inside = (os.path.relpath(os.path.realpath(path), self.folder) for path in paths)
        return sorted({path for path in inside if not path.startswith("..") and path.startswith(self.beginnings)
                       and os.path.basename(path) not in _OF_PATCH_RELEASES})

    def digest(self, names):
        """None where there is not one of them; a missing one counts as an empty one."""
        digest, any_there = hashlib.sha256(), False
        for name in names:
            digest.update(f"{name}\n".encode(errors="surrogatepass"))
            try:
                with open(os.path.join(self.folder, name), "rb") as file:
                    digest.update(file.read())
                any_there = True
            except (OSError, ValueError):
                digest.update(b"absent")
        return digest.hexdigest() if any_there else None


def beginning(build):
    """Of the names of those that may fit."""
    return f"{build.prefix}-{build.release}-{build.abi}-"


def describe(build, sources, dependencies):
    """The text of a description. `dependencies`: what the compiler wrote of the headers that it read."""
    with open(dependencies, encoding="utf-8") as file:
        paths = file.read().replace("\\\n", " ").split()[1:]
    names = build.headers.among(path for path in paths if not path.endswith(":"))
    if not names:
        raise RuntimeError(f"the compiler read no headers of {build.framework}")
    return json.dumps({"framework": build.framework, "version": build.version, "release": build.release,
                       "abi": build.abi, "sources": sources, "digest": build.headers.digest(names), "headers": names})


def _is_description(of):
    """Whether all is there that is read of one."""
    if not isinstance(of, dict) or not isinstance(of.get("headers"), list):
        return False
    texts = [of.get(field) for field in ("version", "release", "abi", "sources", "digest")]
    return all(isinstance(text, str) for text in (*texts, *of["headers"]))


def _descriptions(folder, start):
    """(adaptor, description), of the adaptors that are there. A description that cannot be read counts as absent: then
    an adaptor is compiled."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        adaptor = f"{name[:-len('.json')]}.so"
        if name.startswith(start) and name.endswith(".json") and os.path.isfile(os.path.join(folder, adaptor)):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    of = json.load(file)
            except (OSError, ValueError, RecursionError):
                continue
            if _is_description(of):
                yield adaptor, of


def _fits(build, sources, of):
    if (of["release"], of["abi"], of["sources"]) != (build.release, build.abi, sources):
        return False
    found = build.headers.digest(of["headers"])
    # Debian's PyTorch comes without headers: there each version is one build.
    return found == of["digest"] if found is not None else build.version == of["version"]


def fitting(build, sources, folder):
    """The name of the adaptor in this folder that fits the framework, or None."""
    return next((name for name, of in _descriptions(folder, beginning(build)) if _fits(build, sources, of)), None)


def releases(build, folder):
    """For people: those of this framework that there are adaptors for."""
    found = {of["release"] for _, of in _descriptions(folder, f"{build.prefix}-")}
    return sorted(found, key=lambda release: [int(part) for part in release.split(".") if part.isdecimal()])


def prune(build, sources, folder):
    """Removes what older sources gave, and what has no description."""
    kept = {name for name, of in _descriptions(folder, f"{build.prefix}-") if of["sources"] == sources}
    for name in os.listdir(folder):
        stem, suffix = os.path.splitext(name)
        if name.startswith(f"{build.prefix}-") and suffix in (".so", ".json") and f"{stem}.so" not in kept:
            os.unlink(os.path.join(folder, name))


def open_installed(folder, name, library):
    """A descriptor of the adaptor of that name, which is trusted as libsentinel.so (`library`) is: it has the same
    owner, and nobody else may write to it. pip gives files the mode that the umask leaves. Raises OSError."""
    file = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found, trusted = os.fstat(file), os.stat(library)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if found.st_uid != trusted.st_uid:
            raise OSError(f"it belongs to user {found.st_uid}, and {library} to user {trusted.st_uid}")
        if found.st_mode & ~trusted.st_mode & _OTHERS_WRITE:
            raise OSError(f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})")
    except OSError:
        os.close(file)
        raise
    return file


@contextlib.contextmanager
def locked(folder):
    """Against others who add to it or prune it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def add(made, name, description, folder):
    """Moves the adaptor `made` into the folder, from the same file system."""
    stem = name[:-len(".so")]
    described = os.path.join(os.path.dirname(made), f"{stem}.json")
    with open(described, "w", encoding="utf-8") as file:
        file.write(description)
    with locked(folder):
        os.replace(described, os.path.join(folder, f"{stem}.json"))
        os.replace(made, os.path.join(folder, name))
