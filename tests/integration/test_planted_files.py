"""What another user could put where Sentinel looks for a compiled adaptor, or writes a profile or a summary: it is
neither loaded nor followed."""
import os
import pathlib
import shutil
import subprocess

import pytest

import training

NOBODY = 65534
TRAINS = "import torch; print(int(torch.ones(3).sum()))"
NAME = """
import json, os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "python"))
import torch
from sentinel import _prebuilt, _torch
build = _torch._build_for(torch)
print(build.name(sys.argv[1]))
print(_prebuilt.beginning(build) + "planted")
print(json.dumps(dict(version=build.version, release=build.release, abi=build.abi, headers=[], digest="",
                      sources=build._digest(sys.argv[1], ""))))
"""
PLANTED = """
#include <fcntl.h>
#include <unistd.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { close(creat(getenv("MARKER"), 0600)); }
"""


PLANTS = """
import os, sys
kind, place, mine = sys.argv[1:]
name = place.replace("%p", str(os.getpid()))
if kind == "pipe":
    os.mkfifo(name)
else:
    os.symlink({"link": mine, "nowhere": mine + "-new", "folder": "/var/tmp"}[kind], name)
os.chown(name, 65534, 65534, follow_symlinks=False)
import torch
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
print("trained")
"""


@pytest.fixture(scope="module")
def installed(build, tmp_path_factory):
    """The command and what it needs, without adaptors."""
    place = tmp_path_factory.mktemp("installed")
    (place / "bin").mkdir()
    shutil.copy(build / "bin" / "sentinel", place / "bin")
    shutil.copytree(build / "lib" / "sentinel", place / "lib" / "sentinel", ignore=shutil.ignore_patterns("adaptors"))
    shutil.copy(build / "lib" / "libsentinel.so", place / "lib")
    return place


@pytest.fixture(scope="module")
def planted(installed, python, tmp_path_factory):
    """A library that shows when it is loaded, and the name under which an adaptor is looked for."""
    made = tmp_path_factory.mktemp("planted")
    (made / "planted.c").write_text(PLANTED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made / "planted.so", made / "planted.c"], check=True)
    name = subprocess.run([python, "-c", NAME, installed / "lib" / "sentinel"], capture_output=True, text=True,
                          env={**os.environ, "SENTINEL_FRAMEWORK": "none"})
    assert name.returncode == 0, name.stderr
    name, prebuilt, description = name.stdout.splitlines()
    (made / f"{prebuilt}.json").write_text(description)
    return made / "planted.so", name


@pytest.fixture
def trial(installed, python, tmp_path):
    """Runs a program that imports PyTorch, without a compiler unless asked otherwise."""
    cache, marker = tmp_path / "cache" / "sentinel", tmp_path / "marker"
    cache.mkdir(parents=True, mode=0o700)

    class Trial:
        folder = cache

        @staticmethod
        def run(**environment):
            outcome = training.finish(
                [installed / "bin" / "sentinel", "run", "--", python, "-c", TRAINS],
                env={"XDG_CACHE_HOME": str(cache.parent), "MARKER": str(marker), "CXX": "/bin/false", **environment})
            outcome.loaded = marker.exists()
            return outcome
    return Trial


def place(planted, folder, mode=0o755):
    library, name = planted
    shutil.copy(library, folder / name)
    (folder / name).chmod(mode)
    return folder / name


def refused(outcome, words):
    assert not outcome.loaded and outcome.status == 125, outcome.err
    assert words in outcome.err and "does not compile" in outcome.err


def test_the_users_own_is_loaded(planted, trial):
    """Else the cases below show nothing."""
    place(planted, trial.folder)
    assert trial.run().loaded


def test_of_another_user(planted, trial):
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    os.chown(place(planted, trial.folder), NOBODY, NOBODY)
    refused(trial.run(), "belongs to user 65534")


def test_that_others_may_write(planted, trial):
    place(planted, trial.folder, 0o775)
    refused(trial.run(), "others may write to it (mode 0775)")


def test_a_link(planted, trial, tmp_path):
    place(planted, tmp_path)
    (trial.folder / planted[1]).symlink_to(tmp_path / planted[1])
    refused(trial.run(), "symbolic links")


@pytest.mark.parametrize("of_parent", [False, True])
def test_in_a_folder_that_others_may_write(of_parent, planted, trial):
    place(planted, trial.folder)
    folder = trial.folder.parent if of_parent else trial.folder
    folder.chmod(0o775)
    refused(trial.run(), f"chmod go-w {folder}")


def test_in_a_folder_of_another_user(planted, trial):
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    place(planted, trial.folder)
    os.chown(trial.folder, NOBODY, NOBODY)
    refused(trial.run(), "belongs to user 65534")


@pytest.fixture
def prebuilt(planted, installed):
    """prebuilt(mode): the planted library as an adaptor that came with the installation."""
    adaptors, library = installed / "lib" / "sentinel" / "adaptors", installed / "lib" / "libsentinel.so"
    before = library.stat()
    adaptors.mkdir()

    def put(mode):
        description, = planted[0].parent.glob("*.json")
        shutil.copy(description, adaptors)
        return place((planted[0], f"{description.stem}.so"), adaptors, mode)
    yield put
    shutil.rmtree(adaptors)
    os.chown(library, before.st_uid, before.st_gid)
    library.chmod(before.st_mode & 0o7777)


def test_prebuilt_is_loaded(prebuilt, trial):
    prebuilt(0o755)
    assert trial.run().loaded


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_prebuilt_that_others_may_write(mode, prebuilt, trial, installed):
    (installed / "lib" / "libsentinel.so").chmod(0o755)
    prebuilt(mode)
    refused(trial.run(), f"others may write to it (mode {mode:04o})")


def test_prebuilt_in_a_tree_that_a_group_may_write(prebuilt, trial, installed):
    """As pip leaves it where the umask is 002."""
    prebuilt(0o755)
    subprocess.run(["chmod", "-R", "g+w", installed], check=True)
    try:
        outcome = trial.run()
    finally:
        subprocess.run(["chmod", "-R", "g-w", installed], check=True)
    assert outcome.loaded and "others may write" not in outcome.err, outcome.err


@pytest.mark.parametrize("both", [False, True])
def test_prebuilt_of_another_user(both, prebuilt, trial, installed):
    """It is loaded where libsentinel.so is that user's as well."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    os.chown(prebuilt(0o755), NOBODY, NOBODY)
    if both:
        os.chown(installed / "lib" / "libsentinel.so", NOBODY, NOBODY)
        assert trial.run().loaded
    else:
        refused(trial.run(), "belongs to user 65534")


def test_built_for_one_run_where_there_is_no_cache(trial, tmp_path):
    trial.folder.chmod(0o777)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outcome = trial.run(CXX="c++", TMPDIR=str(scratch))
    assert (outcome.status, outcome.out) == (0, "3\n"), outcome.err
    assert "for this run" in outcome.err and outcome.err.count("chmod go-w") == 1
    assert not list(scratch.iterdir()) and not list(trial.folder.iterdir())


def test_built_once_whatever_the_umask(trial):
    before = os.umask(0o002)
    try:
        first, second = trial.run(CXX="c++"), trial.run()
    finally:
        os.umask(before)
    assert (first.status, first.out, second.status, second.out) == (0, "3\n", 0, "3\n"), first.err + second.err
    assert "building the adaptor" in first.err and "building the adaptor" not in second.err
    library, = trial.folder.iterdir()
    assert library.stat().st_mode & 0o022 == 0


def test_a_compiler_that_fails_leaves_nothing(trial):
    assert trial.run().status == 125
    assert not list(pathlib.Path(trial.folder).iterdir())


SAYS = r"In file x:\n\033[31mx.h:1: error: \302\23331m\342\200\256no such header\033[0m\n  1 | x\n"


@pytest.mark.parametrize("compiler, words", [
    (f"printf '{SAYS}' >&2; exit 1", "no such header"), ("exit 3", "ended with status 3"), (None, "no C++ compiler")],
    ids=["says", "silent", "absent"])
def test_a_compilers_failure_is_one_harmless_line(compiler, words, trial, tmp_path):
    script = tmp_path / "c\x1b[31m++"
    if compiler is not None:
        script.write_text(f"#!/bin/sh\n{compiler}\n")
        script.chmod(0o755)
    outcome = trial.run(CXX=str(script))
    assert outcome.status == 125
    begun, failed = outcome.err.splitlines()
    assert "building the adaptor" in begun
    assert failed.startswith("sentinel: could not load the PyTorch adaptor: ") and words in failed
    assert "in CXX" in failed and failed.endswith("`sentinel doctor` says what is missing")
    assert failed.isprintable()


@pytest.mark.parametrize("missing", ["SENTINEL_HOME", "SENTINEL_LIBRARY"])
def test_a_variable_that_the_program_unset_is_named(missing, trial, installed, python):
    program = f"import os; del os.environ['{missing}']; {TRAINS}"
    outcome = training.finish([installed / "bin" / "sentinel", "run", "--", python, "-c", program])
    assert (outcome.status, outcome.out) == (125, "")
    assert outcome.err == f"sentinel: could not load the PyTorch adaptor: {missing} is not set; " \
                          "`sentinel doctor` says what is missing\n"


@pytest.mark.parametrize("kind", ["link", "nowhere", "folder", "pipe"])
@pytest.mark.parametrize("command", [("record", "-o"), ("run", "--summary")], ids=["profile", "summary"])
def test_what_lies_at_a_name_with_the_processs_number(command, kind, sentinel, python, tmp_path):
    """By the time that the program runs its number is known, and everybody may put something there."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir()
    shared.chmod(0o1777)
    mine.write_text("")
    place = shared / "out-%p"
    outcome = sentinel(*command, place, "--", python, "-c", PLANTS, kind, place, mine)
    planted, = shared.iterdir()
    assert planted.is_symlink() or planted.is_fifo()
    assert mine.read_text() == "" and {path.name for path in tmp_path.iterdir()} == {"shared", "mine"}
    said = [line for line in outcome.err.splitlines() if "belongs to user 65534" in line]
    assert len(set(said)) == 1 and str(planted) in said[0], outcome.err
    assert outcome.status == 125 or (command[0] == "run" and "trained" in outcome.out), outcome.err
