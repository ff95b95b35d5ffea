"""Builds the wheel: scikit-build-core compiles and packs it, auditwheel puts the system's libraries into it and grants
the tag. Named in pyproject.toml; a wheel that auditwheel has not seen runs on the machine alone that built it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from scikit_build_core.build import build_sdist  # noqa: F401
from scikit_build_core.build import build_wheel as _build
from scikit_build_core.build import (get_requires_for_build_sdist,  # noqa: F401
                                     get_requires_for_build_wheel,
                                     prepare_metadata_for_build_wheel)

# In the process before the adaptor is: the framework's own, and the wheel's.
_THERE_BEFORE = ("libtorch*", "libc10*", "libtensorflow*", "libsentinel.so")
# By the sonames of Debian 12 and 13; Sentinel looks for the same.
_SOLVERS = {"Clp": ("libClp.so.1",), "CBC": ("libCbcSolver.so.3", "libCbcSolver.so.3.1")}
# The reference BLAS and LAPACK: a solver needs them for small dense parts, and another would bring 40 MB and threads.
_PLAIN_BLAS = ("lapack", "blas")


def _libraries():
    """The folder of the system's own."""
    return pathlib.Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"


def _solvers():
    """The paths of those that there are. pip shows what is said here with -v; build.sh looks into the wheel."""
    found = {solver: next((str(_libraries() / name) for name in names if (_libraries() / name).exists()), None)
             for solver, names in _SOLVERS.items()}
    missing = [f"{solver} ({' or '.join(_SOLVERS[solver])})" for solver, path in found.items() if path is None]
    if missing:
        print(f"\n*** WARNING: {', '.join(missing)} not found in {_libraries()}. This wheel comes without: plans by integer "
              "programs and bounds need the system's.\n*** For a whole wheel: apt install coinor-libcbc-dev "
              "coinor-libclp-dev\n", file=sys.stderr, flush=True)
    return [path for path in found.values() if path is not None]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The name of the wheel in that folder, with the lowest tag that its parts allow."""
    settings = dict(config_settings or {})
    # Not by the names that Python was built with: the compiler's cache tells c++ from g++.
    os.environ.setdefault("CC", "cc")
    os.environ.setdefault("CXX", "c++")
    settings.setdefault("cmake.define.SENTINEL_SOLVERS", ";".join(_solvers()))
    with tempfile.TemporaryDirectory() as folder:
        name = _build(folder, settings, metadata_directory)
        return _repaired(os.path.join(folder, name), wheel_directory)


def _repaired(wheel, folder):
    with tempfile.TemporaryDirectory() as place:
        plain = [str(_libraries() / each) for each in _PLAIN_BLAS if (_libraries() / each).is_dir()]
        paths = [os.environ.get("PATH", ""), os.path.dirname(sys.executable)]  # of the parts that pip brought, first
        _run("auditwheel", "repair", "--strip", "-w", place, *(f"--exclude={name}" for name in _THERE_BEFORE), wheel,
             LD_LIBRARY_PATH=":".join(plain), PATH=":".join(paths))
        repaired, = pathlib.Path(place).glob("*.whl")
        _run("wheel", "unpack", "-d", place, repaired)
        tree, = (path for path in pathlib.Path(place).iterdir() if path.is_dir())
        _add_licences(tree)
        return _packed(tree, folder)


def _packed(tree, folder):
    """The name of the wheel, which `wheel pack` chooses by what is in the tree."""
    with tempfile.TemporaryDirectory() as place:
        _run("wheel", "pack", "-d", place, tree)
        packed, = pathlib.Path(place).iterdir()
        shutil.copyfile(packed, os.path.join(folder, packed.name))
        return packed.name


def _run(module, *words, **environment):
    subprocess.run([sys.executable, "-m", module, *map(str, words)], check=True, env={**os.environ, **environment})


def _add_licences(tree):
    """Of the libraries that auditwheel put in, by the list that it writes of their packages."""
    described, = tree.glob("*.dist-info")
    listed = json.loads((described / "sboms" / "auditwheel.cdx.json").read_text())
    for part in listed["components"]:
        if not part.get("purl", "").startswith("pkg:deb/"):
            continue
        text = pathlib.Path("/usr/share/doc") / part["name"] / "copyright"
        shutil.copy(text, described / "licenses" / f"{part['name']}.txt")
