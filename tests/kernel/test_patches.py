"""The series as text: what reviewers see first."""

import os
import pathlib
import re
import subprocess

import pytest

from lab import LINUX, MISSING, ROOT

PATCHES = sorted((ROOT / ("kernel/patches" if LINUX == "6.1" else f"kernel/patches-{LINUX}")).glob("*.patch"))


def source():
    """The kernel's source, as the laboratory finds or loads it."""
    script = (f'source "{ROOT}/kernel/lab/common.sh" && source "{ROOT}/kernel/lab/source.sh" && '
              'use_linux && stop_if_missing && echo "$KERNEL_TARBALL"')
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={
        **os.environ, "KERNEL_DIR": str(ROOT / "kernel"), "KERNEL_LINUX": LINUX, "EXIT_MISSING": str(MISSING),
        "EXIT_GUEST_DIED": "125"})
    if found.returncode == MISSING:
        pytest.skip(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    return pathlib.Path(found.stdout.strip())


def added(name):
    """The contents of a file that the series creates, as its patches leave it where one patch does all."""
    for patch in PATCHES:
        text = patch.read_text()
        found = re.search(rf"^\+\+\+ b/{re.escape(name)}\n@@ -0,0 .*\n((?:\+.*\n)+)", text, re.M)
        if found:
            return "".join(line[1:] + "\n" for line in found.group(1).splitlines())
    raise AssertionError(f"no patch creates {name}")


def test_the_header_here_is_the_kernels():
    assert (ROOT / "include/uapi/linux/sentinel.h").read_text() == added("include/uapi/linux/sentinel.h")


def test_checkpatch_has_nothing_to_say(tmp_path):
    names = [f"linux-source-{LINUX}/scripts/{name}" for name in
             ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")]
    subprocess.run(["tar", "-xf", source(), "-C", tmp_path, "--strip-components=1", "--occurrence=1", *names],
                   check=True)
    result = subprocess.run(["perl", tmp_path / "scripts/checkpatch.pl", "--strict", "--no-tree", *PATCHES],
                            capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("0 errors, 0 warnings, 0 checks") == len(PATCHES)


@pytest.mark.skipif(not os.environ.get("SENTINEL_EACH_PATCH"), reason="takes six minutes and more: "
                    "SENTINEL_EACH_PATCH=1 has it compile the series patch by patch (kernel/lab/each_patch.sh)")
def test_each_patch_compiles(tell):
    result = subprocess.run(["bash", ROOT / "kernel/lab/each_patch.sh", LINUX], capture_output=True, text=True)
    if result.returncode == MISSING:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(re.findall(r"^ok: \d{4}-", result.stdout, re.M)) == len(PATCHES)
    assert "ok: all patches, no SENTINEL" in result.stdout
    tell(result.stdout.strip().replace("\n", "; "))


def changes_in_existing_files():
    """Of each file that was there before the series: the lines that its patches add and take away."""
    changes, created = {}, set()
    for patch in PATCHES:
        for part in re.split(r"^diff --git ", patch.read_text(), flags=re.M)[1:]:
            name = re.match(r"a/\S+ b/(\S+)", part).group(1)
            if "\n--- /dev/null\n" in part:
                created.add(name)
            if name not in created:
                changes.setdefault(name, []).extend(re.findall(r"^([+-](?!(?:--|\+\+) ).*)", part, re.M))
    return changes


def test_hooks_are_a_handful_of_lines(tell):
    """Of code that was there, over all patches: includes, comments and empty lines apart."""
    code = {}
    for name, lines in changes_in_existing_files().items():
        if name.endswith((".c", ".h")):
            code[name] = [line for line in lines if line[1:].strip() and "#include" not in line
                          and not re.match(r"\s*(/\*|\*)", line[1:])]
    tell(", ".join(f"{name} {len(lines)}" for name, lines in sorted(code.items())))
    assert "mm/gup.c" in code and "include/linux/mm_types.h" in code
    assert max(len(lines) for lines in code.values()) <= (6 if LINUX == "6.1" else 7), code
    assert sum(len(lines) for lines in code.values()) <= 25, code
