"""What another user could put where Sentinel looks for a compiled adaptor: it is not loaded."""
import os
import pathlib
import shutil
import subprocess

import pytest

import training

NOBODY = 65534
TRAINS = "import torch; print(int(torch.ones(3).sum()))"
NAME = """
import os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "python"))
import torch
from sentinel import _torch
print(_torch._build_for(torch)._name(sys.argv[1]))
"""
PLANTED = """
#include <fcntl.h>
#include <unistd.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { close(creat(getenv("MARKER"), 0600)); }
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
    return made / "planted.so", name.stdout.strip()


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


def test_prebuilt_that_others_may_write(planted, trial, installed):
    adaptors = installed / "lib" / "sentinel" / "adaptors"
    adaptors.mkdir()
    try:
        place(planted, adaptors, 0o777)
        refused(trial.run(), "others may write to it (mode 0777)")
    finally:
        shutil.rmtree(adaptors)


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
