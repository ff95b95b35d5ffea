"""The patched kernel: its own tests, its counts against two other ways to know them, its cost."""

import os
import re

import pytest

from lab import BUILD, HAS_UFFDIO_MOVE, LINUX, ROOT, of_same_bits, passed
from static_keys import Image

SELFTESTS = 'cd "$LAB_SELFTESTS" && for t in abi counts io memory numa processes; do ./$t 2>&1 || exit 1; done'
KERNEL_TESTS = "*KernelSource*:Kernel/*:*BothSources*:-*Absence*"
RESULT = r"^(ok|not ok) \d+ (.*)$"

# _IOWR('f', 16, struct pm_scan_arg) of Linux 6.7
PAGEMAP_SCAN = """
import errno, fcntl
try:
    fcntl.ioctl(open("/proc/self/pagemap"), 0xC0606610, bytearray(96))
except OSError as refused:
    print("PAGEMAP_SCAN:", errno.errorcode[refused.errno])
"""

# Tests of the executors that may skip, each with its reason. (Skips for want of the kernel's features or of a
# second node may not: the guest has them.)
MAY_SKIP = {f"Granules/NumaEngineTest.{test}/Kernel4K": "the test's tensors share no granule of 4 KiB"
            for test in ("SharedGranulesMoveWithTheLastThatIsWanted",
                         "ABornTensorBesideASlowNeighbourIsBroughtIn")}


def results(output):
    """Names of selftests that passed; none may have failed or been skipped: the guest has all that they need."""
    found = re.findall(RESULT, output, re.M)
    bad = [name for ok, name in found if ok != "ok" or "SKIP" in name]
    assert not bad, bad
    return [name for _, name in found]


def test_selftests_and_kunit(lab, tell):
    output = passed(lab.run("bash", "-c", SELFTESTS, options=["--shape", "dram+dram"]))
    assert len(results(output)) > 60
    tell(f"{len(results(output))} selftests; compaction: "
         + re.findall(r"\d+ of \d+ armed pages were moved", output)[-1])
    assert re.search(r"sentinel-window: pass:7 fail:0", lab.log), "KUnit did not run"


def test_counts_are_the_userfaultfd_sources(lab):
    """The seam's contract, and random accesses, copies, gathers over two pages, system calls, O_DIRECT and
    io_uring under windows of 1 to 1024 pages: both sources, and a model of the window in the test, count
    the same."""
    output = passed(lab.run(BUILD / "bin/capture_test", "--gtest_brief=1",
                            f"--gtest_filter={KERNEL_TESTS}"))
    assert "SKIPPED" not in output
    assert int(re.search(r"PASSED  \] (\d+)", output).group(1)) > 50


def test_a_gpus_openings(lab):
    """Recordings on a GPU that uses pageable memory. The driver is the tests', and its device's kernels are the
    processor's, so that what they open is really counted: each page of each operand once an op."""
    output = passed(lab.run(BUILD / "bin/execute_test", "--gtest_brief=1",
                            "--gtest_filter=*GpuCountingInTheKernel*", options=["--shape", "dram"]))
    assert "SKIPPED" not in output and "PASSED  ] 6 tests" in output


def test_cost_of_an_opening(lab, tell):
    output = passed(lab.run(BUILD / "bin/counting_bench"))
    ratio = float(re.search(r"kernel / userfaultfd: ([\d.]+)", output).group(1))
    tell("; ".join(output.strip().splitlines()))
    assert ratio > 0


def test_engines(lab, tell):
    """The engine and its executors, on ext4 with O_DIRECT and on two nodes, as on a Debian server."""
    # Half of them on each processor. A GPU's and a plan's tests, arithmetic and imitated nodes (Fake) have nothing to
    # do with the kernel: they run outside. Without UFFDIO_MOVE an engine that asks for it falls back to copies. So the
    # tests of MoveUring show the fallback, those of CopyUring are the same, and those of MoveThreads are those of
    # CopyThreads. With it MoveUring and CopyThreads have each way once. Those of MovedFrames are of UFFDIO_MOVE itself, as
    # is what stands in for read-write protection.
    without_move = "" if HAS_UFFDIO_MOVE else ":*/Bars:*CountingPrivateMemory*"
    frames = ":MovedFrames*:*CountingPrivateMemory*" if HAS_UFFDIO_MOVE else ""
    command = (f"/usr/bin/python3 -c '{PAGEMAP_SCAN}'; "
               '"$SENTINEL_BUILD"/bin/sentinel doctor; export GTEST_TOTAL_SHARDS=2; '
               'half() { GTEST_SHARD_INDEX=$1 "$SENTINEL_BUILD"/bin/execute_test '
               '--gtest_filter="*EngineTest.*:*EngineContract*:*StridingTest*:*Node*:Numa*:PageMover*:*Executor*'
               f':SlowFile*:Exchange*:SessionInAnyOrder*{frames}'
               f'-*/Fake*:GpuEngine*:*GpuPools*:*MoveThreads:*CopyUring{without_move}"; }}; '
               'half 1 >"$LAB_OUT/other" 2>&1 & half 0; status=$?; wait $!; other=$?; '
               'cat "$LAB_OUT/other"; exit $((status | other))')
    output = passed(lab.run("bash", "-c", command, SENTINEL_BUILD=str(BUILD), timeout=1800))
    assert ("this kernel has no UFFDIO_MOVE" in output) != HAS_UFFDIO_MOVE
    assert ("PAGEMAP_SCAN: ENOTTY" in output) != HAS_UFFDIO_MOVE
    skipped = set(re.findall(r"^\[  SKIPPED \] ([\w/.]+)(?: \(|$)", output, re.M))
    assert skipped <= set(MAY_SKIP), skipped - set(MAY_SKIP)
    for suite in ("EngineTest", "NumaEngineTest", "ExecutorContract", "SlowFile"):
        ran = re.findall(rf"^\[       OK \] (?:\w+/)?{suite}\.", output, re.M)
        assert ran, f"{suite} did not run"
        tell(f"{suite}: {len(ran)}")


def test_everything_at_once_on_a_debug_kernel(lab, tell):
    """KASAN, lockdep, DEBUG_VM, DEBUG_ATOMIC_SLEEP; the laboratory fails on any report in the log."""
    seconds = os.environ.get("SENTINEL_STRESS_SECONDS", "60")
    command = f"{SELFTESTS} && SENTINEL_SECONDS={seconds} ./stress && SENTINEL_SECONDS=20 ./fuzz"
    output = passed(lab.run("bash", "-c", command, options=["--debug"], timeout=1500))
    assert "KASAN" in lab.log or "kasan" in lab.log
    figures = [name for name in results(output) if re.search(r": \d+$", name)]
    assert len(figures) > 20 and "wrong bytes: 0" in figures
    calls = re.search(r"^# (\d+ calls from \d+ processes, 0 of them failed)", output, re.M).group(1)
    for figure in [*figures, f"fuzz: {calls}", f"{lab.seconds:.0f} s with the kernel's build"]:
        tell(figure)


def test_unused_it_costs_no_ops(lab, tell):
    """Every place that asks the static key holds a no-op of five or two bytes while there is no session."""
    kernel, version = passed(lab.run("sh", "-c", 'echo "$LAB_KERNEL"; cat /proc/version',
                                     options=["--shape", "dram"])).splitlines()
    if not kernel:
        pytest.skip("the laboratory used a kernel image that was given to it")
    image = Image(os.path.join(kernel, "vmlinux"))
    assert version.encode() in image.data, "this is not the kernel that was booted"
    sites = list(image.sites_of("sentinel_in_use"))
    for site in sites:
        assert (site.instruction.split()[0], site.bytes) in (("nopl", 5), ("xchg", 2)), site
        assert site.instruction in ("nopl   0x0(%rax,%rax,1)", "xchg   %ax,%ax"), site
    tell("; ".join(f"{site.function}: {site.bytes} bytes" for site in sites))
    # Of 6.1 as many as Documentation/mm/sentinel.rst and the hooks' commit message say.
    assert len(sites) == {"6.1": 10, "6.12": 17}[LINUX]
    assert any(site.function == "__handle_mm_fault" for site in sites)


TRAIN = """
set -e
python=/usr/bin/python3 out=$LAB_OUT
$python "$@" --json $out/plain.json >/dev/null
"$SENTINEL_BUILD"/bin/sentinel run --slow /var/tmp --fast 60% --count userfaultfd \\
  --summary $out/summary.json -o $out/profile.sentinel -- $python "$@" --json $out/sentinel.json >/dev/null
"""


def test_training_on_an_ssd(lab, tell):
    """As on a Debian server: counted through userfaultfd, moved to a file, on Debian 12 by copies, to the last bit."""
    script = [ROOT / "tests/workloads/bert_mlm.py", "--layers", 2, "--hidden", 64, "--heads", 2, "--seq", 16,
              "--batch", 2, "--vocab", 30000, "--steps", 6, "--threads", 2]
    passed(lab.run("bash", "-c", TRAIN, "train", *script, SENTINEL_BUILD=str(BUILD)))
    summary = of_same_bits(lab.folder)
    steady = [step for step in summary["steps"] if step["phase"] == "steady"]
    assert steady and all(step["promoted_bytes"] > 0 and step["demoted_bytes"] > 0 for step in steady)
    tell(f"limit {summary['fast_limit_bytes'] / 2**20:.1f} MiB of "
         f"{summary['peak_unlimited_bytes'] / 2**20:.1f}; the last step brings in "
         f"{steady[-1]['promoted_bytes'] / 2**20:.1f} MiB; {lab.seconds:.0f} s")
