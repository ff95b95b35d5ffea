"""Adaptors that are compiled ahead, by a compiler that only copies: which of them fit, and many made at a time."""
import concurrent.futures
import json
import os
import pathlib
import sys

import pytest

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "libsentinel" / "python" / "sentinel"
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -MF) echo "adaptor: $HEADERS/ATen/a.h" >"$2" ;;
    -o) echo code >"$2" ;;
  esac
  shift
done
"""


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(PYTHON))
    import _attach
    import _prebuilt
    yield _attach, _prebuilt
    for name in ("_attach", "_prebuilt"):
        sys.modules.pop(name)


@pytest.fixture
def make(modules, monkeypatch, tmp_path):
    """make(release): a build of that framework's release; `make.home`: the installation."""
    attach, prebuilt = modules
    home, headers, compiler = tmp_path / "lib" / "sentinel", tmp_path / "headers", tmp_path / "c++"
    for file in (home / "source/sentinel/adaptor.h", home / "source/sentinel/sentinel.h", home / "source/a.cpp",
                 headers / "ATen/a.h"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("HEADERS", str(headers))

    def build(release, abi="cxx11"):
        return attach.Build(f"Frame {release}", f"frame-{release}", "frame", f"{release}.1", release, abi,
                            prebuilt.Headers(headers), "", ["a.cpp"], lambda source: [])
    build.home, build.folder = str(home), home / "adaptors"
    build.fitting = lambda *which: prebuilt.fitting(build(*which), build(*which)._digest(build.home, ""),
                                                    str(build.folder))
    return build


def test_many_at_a_time_are_all_there(make):
    releases = [f"{number}.0" for number in range(12)]
    with concurrent.futures.ThreadPoolExecutor(len(releases)) as pool:
        list(pool.map(lambda release: make(release).prebuild(make.home), releases))
    assert all(make.fitting(release) for release in releases)
    assert len(list(make.folder.iterdir())) == 2 * len(releases)
    assert [path.name for path in make.folder.parent.parent.iterdir()] == ["sentinel"]


def test_another_release_abi_or_header_does_not_fit(make, tmp_path):
    make("1.0").prebuild(make.home)
    assert make.fitting("1.0", "cxx11") and not make.fitting("1.0", "cxx98") and not make.fitting("1.1", "cxx11")
    (tmp_path / "headers/ATen/a.h").write_text("another layout")
    assert not make.fitting("1.0", "cxx11")


def test_an_adaptor_is_never_there_without_its_description(make, monkeypatch):
    seen, replace = [], os.replace

    def watched(*words, **places):
        replace(*words, **places)
        seen.append({path.suffix for path in make.folder.iterdir()})
    monkeypatch.setattr(os, "replace", watched)
    make("1.0").prebuild(make.home)
    assert {".json"} in seen and seen[-1] == {".json", ".so"} and {".so"} not in seen


def test_a_description_without_its_adaptor_fits_nothing(make):
    make("1.0").prebuild(make.home)
    name = make.fitting("1.0")
    (make.folder / name).unlink()
    assert make.fitting("1.0") is None
    make("1.0").prebuild(make.home)
    assert make.fitting("1.0") == name


def test_what_older_sources_gave_is_removed(make):
    make("1.0").prebuild(make.home)
    old = make.fitting("1.0")
    (pathlib.Path(make.home) / "source" / "a.cpp").write_text("newer")
    make("1.0").prebuild(make.home)
    assert make.fitting("1.0") not in (None, old) and len(list(make.folder.iterdir())) == 2


@pytest.mark.parametrize("text", ["[]", "1", "null", "{}", "{", "without headers", "headers of numbers", "no text"])
def test_a_description_that_is_none_is_as_if_it_were_not_there(text, make, modules):
    make("1.0").prebuild(make.home)
    description, = make.folder.glob("*.json")
    whole = json.loads(description.read_text())
    changed = {"without headers": {key: whole[key] for key in whole if key != "headers"},
               "headers of numbers": {**whole, "headers": [1]}, "no text": {**whole, "release": 1}}
    description.write_text(json.dumps(changed[text]) if text in changed else text)
    assert make.fitting("1.0") is None
    assert modules[1].releases(make("1.0"), str(make.folder)) == []
    make("1.0").prebuild(make.home)
    assert make.fitting("1.0") and modules[1].releases(make("1.0"), str(make.folder)) == ["1.0"]
