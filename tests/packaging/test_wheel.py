"""The wheel, installed without an index and without a compiler: it records, reports and trains within a budget."""
import os
import pathlib
import re
import subprocess
import zipfile

import pytest

TRAIN = pathlib.Path(__file__).with_name("train.py")
MORE = [python for python in os.environ.get("SENTINEL_WHEEL_PYTHONS", "").split(":") if python]
RUN = ("sentinel", "run", "--fast", "20%", "--", "python3", TRAIN)
TAG = "manylinux_2_34_x86_64"  # the lowest that Debian 12's C library allows


@pytest.fixture(scope="module")
def installed(environment, torch2):
    return environment(torch2)


def same_training(place, **variables):
    """Plain and within a budget, which moves tensors; what the second said."""
    plain, within = place.run("python3", TRAIN), place.run(*RUN, **variables)
    assert plain.status == within.status == 0, plain.err + within.err
    assert plain.out == within.out and len(plain.out.splitlines()) > 8
    assert "the second within the limit" in within.err and " 0 B went to" not in within.err
    return within.err


def test_the_tag(wheel):
    assert wheel.name.split("-")[2:] == ["py3", "none", f"{TAG}.whl"]


def test_libraries_name_no_place_of_the_machine_that_built_them(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if re.search(r"\.so(\.[^/]*)?$|bin/sentinel$", name)]
        adaptors = [name for name in names if "/adaptors/" in name]
        for name in names:
            told = subprocess.run(["readelf", "-d", file.extract(name, tmp_path)], check=True, capture_output=True,
                                  text=True).stdout
            paths = [line for line in told.splitlines() if "RPATH" in line or "RUNPATH" in line]
            assert all("[$ORIGIN" in line for line in paths), (name, paths)
            assert not (paths and name in adaptors), (name, paths)
    assert adaptors
    assert not [name for name in names if pathlib.Path(name).name.startswith(("libtorch", "libc10", "libtensorflow"))]


def test_licences_of_all_that_it_brings(wheel):
    with zipfile.ZipFile(wheel) as file:
        brought = {name for name in file.namelist() if name.startswith("sentinel_hm.libs/") and ".so" in name}
        texts = {name for name in file.namelist() if "/licenses/" in name}
    # Several libraries may be one package's, and a package has one text.
    assert brought and any("libhwloc" in name for name in texts) and any("coinor-libclp" in name for name in texts)


def test_records_and_reports_without_a_compiler(installed):
    assert installed.run("python3", "-c", "import shutil; print(shutil.which('c++'))").out == "None\n"
    recorded = installed.run("sentinel", "record", "-o", "step.sentinel", "--", "python3", TRAIN)
    assert recorded.status == 0 and recorded.out == installed.run("python3", TRAIN).out, recorded.err
    report = installed.run("sentinel", "report", "step.sentinel", "summary")
    assert report.status == 0 and "framework  torch 2" in report.out, report.err


def test_the_same_training_without_a_compiler(installed):
    assert "building the adaptor" not in same_training(installed)


def test_solvers_are_the_wheels_own(installed):
    """A plan by integer programs, while the loader finds no library of the system's by name."""
    recorded = installed.run("sentinel", "record", "-o", "plan.sentinel", "--", "python3", TRAIN)
    assert recorded.status == 0, recorded.err
    traced = installed.run("sentinel", "simulate", "plan.sentinel", "--machine", "optane", "--policy", "autotm",
                           "--fast", "50%", LD_DEBUG="files")
    assert traced.status == 0, traced.err[-2000:]
    loaded = [line.split()[-1] for line in traced.err.splitlines() if "calling init" in line]
    solvers = [path for path in loaded if "Cbc" in path or "Clp" in path]
    assert solvers and all(path.startswith(str(installed.folder)) for path in solvers), solvers


def test_marks_can_be_imported_without_sentinel_around(installed):
    outcome = installed.run("python3", "-c", "import sentinel\nsentinel.step()\nprint('fine')")
    assert (outcome.status, outcome.out, outcome.err) == (0, "fine\n", "")


@pytest.fixture(scope="module")
def without_adaptors(environment, torch2):
    place = environment(torch2)
    for file in (place.installed / "lib" / "sentinel" / "adaptors").glob("torch-2*"):
        file.unlink()
    return place


def test_without_an_adaptor_and_a_compiler_it_says_what_to_do(without_adaptors):
    outcome = without_adaptors.run(*RUN)
    assert (outcome.status, outcome.out) == (125, "")
    assert "no C++ compiler for the adaptor" in outcome.err and "install g++" in outcome.err


def test_without_an_adaptor_one_is_compiled(without_adaptors):
    said = same_training(without_adaptors, PATH=f"{without_adaptors.folder / 'bin'}:/usr/bin:/bin")
    assert "building the adaptor for PyTorch 2" in said


def test_an_adaptor_for_other_headers_is_not_loaded(environment, torch2):
    """The release and the ABI are the same, and a header is not."""
    place = environment(torch2)
    adaptors = place.installed / "lib" / "sentinel" / "adaptors"
    for file in adaptors.glob("torch-2*.json"):
        text = file.read_text()
        at = text.index('"digest": "') + len('"digest": "')
        file.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1:])
    outcome = place.run(*RUN)
    assert outcome.status == 125 and "none comes with Sentinel for PyTorch 2" in outcome.err


def test_nothing_is_left_after_pip_uninstall(environment, torch2):
    place = environment(torch2)
    same_training(place)
    place.pip("uninstall", "-y", "sentinel-hm")
    left = [path for path in place.folder.rglob("*sentinel*") if ".cache" not in path.parts]
    assert not left


@pytest.mark.parametrize("python", MORE or [pytest.param(None, marks=pytest.mark.skip(
    "SENTINEL_WHEEL_PYTHONS names no interpreter"))])
def test_more_frameworks(python, environment):
    assert "building the adaptor" not in same_training(environment(python))


