"""Adaptors that were compiled before Sentinel was installed. A description beside each (NAME.json) has the framework's
release and C++ ABI, and a digest of those of the framework's headers that its compiler read. An adaptor fits where all
three are the same: compiling here would give this very library."""
import hashlib
import json
import os

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
            digest.update(f"{name}\n".encode())
            try:
                with open(os.path.join(self.folder, name), "rb") as file:
                    digest.update(file.read())
                any_there = True
            except OSError:
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


def _descriptions(folder, start):
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.startswith(start) and name.endswith(".json"):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    yield name[:-len(".json")] + ".so", json.load(file)
            except (OSError, ValueError):  # as if it were not there: one is compiled
                continue


def _fits(build, sources, of):
    if (of.get("release"), of.get("abi"), of.get("sources")) != (build.release, build.abi, sources):
        return False
    found = build.headers.digest(of["headers"])
    # Debian's PyTorch comes without headers: there each version is one build.
    return found == of["digest"] if found is not None else build.version == of["version"]


def fitting(build, sources, folder):
    """The name of the adaptor in this folder that fits the framework, or None."""
    return next((name for name, of in _descriptions(folder, beginning(build)) if _fits(build, sources, of)), None)


def releases(build, folder):
    """For people: those of this framework that there are adaptors for."""
    found = {of.get("release", "") for _, of in _descriptions(folder, f"{build.prefix}-")}
    return sorted(found, key=lambda release: [int(part) for part in release.split(".") if part.isdigit()])


def prune(build, sources, folder):
    """Removes what older sources gave, and what has no description."""
    kept = {name for name, of in _descriptions(folder, f"{build.prefix}-") if of.get("sources") == sources}
    for name in os.listdir(folder):
        stem, suffix = os.path.splitext(name)
        if name.startswith(f"{build.prefix}-") and suffix in (".so", ".json") and f"{stem}.so" not in kept:
            os.unlink(os.path.join(folder, name))
