"""The command blocks of the README, the guides, the reference and the examples: those that are not marked as not run
here are run, one document's in one folder, in their order. There are the folders of the repository, the built command,
a python3 that has PyTorch, and a small train.py."""
import os
import pathlib
import shlex
import shutil
import sys

import pytest

import training

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "house"))
import documents_test  # noqa: E402

DOCUMENTS = {name: text for name, text in documents_test.documents(REPOSITORY).items()
             if name.startswith(documents_test.RUN_FROM)}
BLOCKS = {name: [(line, commands) for line, commands, marked in documents_test.command_blocks(text) if not marked]
          for name, text in DOCUMENTS.items()}
MOST_PROCESSORS = 8  # the smallest budget grows with them, beyond the budgets of the texts


@pytest.fixture
def place(build, python, tmp_path):
    """A folder as the texts describe it, and the environment there."""
    for folder in documents_test.FOLDERS:
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    (tmp_path / "build").symlink_to(build)
    shutil.copy(REPOSITORY / "examples" / "pytorch_loop.py", tmp_path / "train.py")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f"#!/bin/sh\nexec {shlex.quote(str(python))} \"$@\"\n")
    (programs / "python3").chmod(0o755)
    return tmp_path, {"PATH": f"{build / 'bin'}:{programs}:{os.environ['PATH']}"}


def test_most_documents_have_blocks():
    assert sum(map(len, BLOCKS.values())) > 20


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if blocks])
def test_commands(name, place):
    folder, environment = place
    processors = sorted(os.sched_getaffinity(0))[:MOST_PROCESSORS]
    for line, commands in BLOCKS[name]:
        outcome = training.finish(["taskset", "-c", ",".join(map(str, processors)), "bash", "-euo", "pipefail", "-c",
                                   commands], cwd=folder, env=environment, timeout=300)
        assert outcome.status == 0, f"{name}:{line}\n{commands}\n{outcome.out[-2000:]}{outcome.err[-2000:]}"
