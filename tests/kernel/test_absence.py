"""A machine without QEMU: the laboratory names the package, and the guest's tests skip with that reason."""

import os
import pathlib

import pytest


@pytest.fixture
def path_without_qemu(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(":") + ["/usr/sbin", "/sbin"]:
        for command in pathlib.Path(place).glob("*"):
            link = folder / command.name
            if not command.name.startswith("qemu-") and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


def test_without_qemu_guest_tests_are_skipped(lab, path_without_qemu):
    with pytest.raises(pytest.skip.Exception) as skipped:
        lab.run("true", PATH=path_without_qemu)
    assert "missing: qemu-system-x86" in str(skipped.value)
    assert "apt-get install" in str(skipped.value)
