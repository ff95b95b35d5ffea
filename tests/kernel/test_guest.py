"""The patched kernel: its own tests, its counts against two other ways to know them, its cost."""

import os
import re
import subprocess

import pytest

from lab import BUILD, passed

SELFTESTS = 'cd "$LAB_SELFTESTS" && for t in abi counts memory processes; do ./$t || exit 1; done'
KERNEL_TESTS = "*KernelSource*:Kernel/*:*BothSources*:-*Absence*"


def test_selftests_and_kunit(lab, tell):
    output = passed(lab.run("bash", "-c", SELFTESTS, options=["--shape", "dram+dram"]))
    results = re.findall(r"^(ok|not ok) \d+ (.*)$", output, re.M)
    assert len(results) > 40 and all(ok == "ok" for ok, _ in results)
    for _, name in results:
        if "SKIP" in name:
            tell(f"skipped: {name}")
    assert re.search(r"sentinel-window: pass:7 fail:0", lab.log), "KUnit did not run"


def test_counts_are_the_userfaultfd_sources(lab):
    """The seam's contract, and random accesses, copies, gathers over two pages and system calls under
    windows of 1 to 1024 pages: both sources, and a model of the window in the test, count the same."""
    output = passed(lab.run(BUILD / "bin/capture_test", "--gtest_brief=1",
                            f"--gtest_filter={KERNEL_TESTS}"))
    assert "SKIPPED" not in output
    assert int(re.search(r"PASSED  \] (\d+)", output).group(1)) > 40


def test_cost_of_an_opening(lab, tell):
    output = passed(lab.run(BUILD / "bin/counting_bench"))
    ratio = float(re.search(r"kernel / userfaultfd: ([\d.]+)", output).group(1))
    tell("; ".join(output.strip().splitlines()))
    assert ratio > 0


def test_engines_on_a_kernel_without_uffdio_move(lab):
    """The SSD engine on ext4 with O_DIRECT, and the engine on two nodes, as on a Debian 12 server."""
    output = passed(lab.run(BUILD / "bin/execute_test", "--gtest_brief=1"))
    assert int(re.search(r"PASSED  \] (\d+)", output).group(1)) > 50


def test_everything_at_once_on_a_debug_kernel(lab, tell):
    """KASAN, lockdep, DEBUG_VM, DEBUG_ATOMIC_SLEEP; the laboratory fails on any report in the log."""
    seconds = os.environ.get("SENTINEL_STRESS_SECONDS", "60")
    command = f"{SELFTESTS} && SENTINEL_SECONDS={seconds} ./stress && SENTINEL_SECONDS=20 ./fuzz"
    output = passed(lab.run("bash", "-c", command, options=["--debug"], timeout=1500))
    assert "KASAN" in lab.log or "kasan" in lab.log
    for figure in re.findall(r"^# ((?:accesses|openings|pages migrated|forks|kills|system calls|"
                             r"wrong bytes|\d+ calls).*)$", output, re.M):
        tell(figure)
    tell(f"{lab.seconds:.0f} s with the kernel's build")
    assert "wrong bytes: 0" in output


def test_unused_it_costs_a_no_op(lab):
    """The static key's site in the fault path is a no-op of five bytes while no session exists."""
    passed(lab.run("true"))
    cache = os.environ.get("SENTINEL_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sentinel")
    images = [os.path.join(folder, "vmlinux") for folder, _, files in os.walk(f"{cache}/kernel")
              if "vmlinux" in files and "bzImage" in files]
    if not images:
        pytest.skip("the laboratory used a kernel image that was given to it")
    image = max(images, key=os.path.getmtime)
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=__handle_mm_fault",
                           image], capture_output=True, text=True, check=True).stdout
    assert re.search(r"nopl\s+0x0\(%rax,%rax,1\)", text), text[-2000:]
    assert "__sentinel_fault" in text
