"""What the scripts of tests/gpu start, without a device: its models on the processor, its tests of a device and its
measurement with drivers that are none."""
import json
import os
import re
import subprocess
import sys

import pytest
from gpu_stand_ins import GPU, write_program

import compared
from steps import CHECKED

@pytest.mark.parametrize("model", compared.MODELS)
def test_a_technique_changes_no_loss(python, tmp_path, model):
    """Small models on the processor."""
    words = [python, GPU / "train.py", model, "--device", "cpu", "--size", "tiny", "--batch", "2", "--steps", "3",
             "--techniques", "none,checkpoint,save_on_cpu,none", "--json", tmp_path / "run.json"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "run.json").read_text())
    assert [run["technique"] for run in runs] == ["none", "checkpoint", "save_on_cpu", "none"]
    losses = [[step["loss"] for step in run["steps"]] for run in runs]
    assert losses.count(losses[0]) == 4 and len(set(losses[0])) == 3


def test_plain_pytorch_looks_for_its_largest_batch(python):
    words = [python, GPU / "train.py", "ViT", "--device", "cpu", "--size", "tiny", "--steps", "1", "--largest",
             "--most", "3"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=100)
    assert done.stdout == "3\n" and "batch 1 trains\nbatch 2 trains\nbatch 3 trains\n" in done.stderr


def cases(python, sentinel, *names):
    words = [sys.executable, GPU / "torch_test.py", "--sentinel", sentinel, "--python", python, "--device", "cpu",
             "--cases", ",".join(names)]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)


def test_programs_print_the_same_in_a_share_of_their_memory(python, build):
    """On the processor, and so what a device has in common with it: that these programs train, and are compared."""
    done = cases(python, build / "bin" / "sentinel", "straight", "forked", "another_thread", "another_device")
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(told) == ["straight", "forked", "another_thread", "another_device"]
    assert told["straight"] == told["another_thread"] == told["another_device"] != told["forked"]
    assert "tensors: " in told["forked"]


@pytest.mark.parametrize("wrong, told", [
    ("print('more')", "plain: the end; Sentinel: more"),
    ("sys.exit('lost')", "Sentinel: status 1: lost"),
    ("print('CUDA: initialization error', file=sys.stderr)", "CUDA: initialization error"),
    ("print('[W1125 10:02:03.456 Context.cpp:80] Warning: said by both', file=sys.stderr)", None),
    ("print('[W1125 10:02:03.456 Context.cpp:80] Warning: said by one', file=sys.stderr)",
     "[W1125 10:02:03.456 Context.cpp:80] Warning: said by one"),
    ("", None)])
def test_a_program_that_does_not_is_told(tmp_path, wrong, told):
    python = write_program(tmp_path / "python", "import sys\nprint('trained')\n"
                           "print('[W1125 10:01:02.345 Context.cpp:80] Warning: said by both', file=sys.stderr)")
    sentinel = write_program(tmp_path / "sentinel", "import subprocess, sys\n"
                             f"subprocess.run(sys.argv[sys.argv.index('--') + 1:])\nsys.stdout.flush()\n{wrong}")
    done = cases(python, sentinel, "straight")
    assert done.stdout == f"straight: {told or 'trained'}\n" and done.returncode == (1 if told else 0)


def test_one_program_is_in_managed_memory(tmp_path):
    python = write_program(tmp_path / "python", "import sys\nprint(sys.argv[2])")
    sentinel = write_program(tmp_path / "sentinel", "import subprocess, sys\n"
                             f"open({str(tmp_path / 'log')!r}, 'a').write(' '.join(sys.argv[1:-5]) + '\\n')\n"
                             "subprocess.run(sys.argv[sys.argv.index('--') + 1:])")
    done = subprocess.run([sys.executable, GPU / "torch_test.py", "--sentinel", sentinel, "--python", python, "--cases",
                           "forked,managed_memory"], capture_output=True, text=True, timeout=100)
    assert done.stdout == "forked: forked\nmanaged_memory: straight\n" and done.returncode == 0
    tiers = "run --tiers fast=gpu0,slow=host"
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{tiers} --fast 70% --quiet --", f"{tiers} --gpu-memory managed --fast 70% --quiet --"]


# ---------------------------------------------------------------- the tests of a device, with drivers that are none


def device_test(build, library, *options, **variables):
    """What gpu_device_test ends with and says."""
    done = subprocess.run([build / "bin" / "gpu_device_test", *options], capture_output=True, text=True, timeout=800,
                          env={**os.environ, "SENTINEL_CUDA": str(library), **variables})
    return done.returncode, done.stdout


def over_the_tests_driver(build, folder, text):
    """A library that has what `text` defines and, for the rest, is the tests' driver."""
    made, fake = folder / "libover.so", build / "lib" / "libsentinel_fake_cuda.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", "-o", made, "-Wl,--no-as-needed", fake,
                    f"-Wl,-rpath,{fake.parent}"], input=text, text=True, check=True, timeout=100)
    return made


# As touch_kernel.h's: it is run when it is launched.
KERNELS = """
#include <cstdint>
extern "C" {
int cuModuleLoadData(void** module, const void*) { return *module = module, 0; }
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char*) { return *function = module, 0; }
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void** arguments,
                   void**) {
  auto page = *static_cast<std::uint64_t*>(arguments[0]);
  for (auto left = *static_cast<std::uint64_t*>(arguments[1]); left > 0; --left, page += 4096) {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(page);
    if (*static_cast<std::uint64_t*>(arguments[2])) *word = left WRONG; else (void)*word;
  }
  return 0;
}
}
"""


def test_the_tests_of_a_device_skip_where_there_is_none_and_fail_where_it_refuses(build, tmp_path):
    status, out = device_test(build, tmp_path / "none.so", "--gtest_brief=1")
    assert status == 0 and "PASSED  ] 0 tests" in out and "no driver: " in out
    none = over_the_tests_driver(build, tmp_path, 'extern "C" int cuInit(unsigned) { return 100; }')
    status, out = device_test(build, none, "--gtest_brief=1")
    assert status == 0 and "PASSED  ] 0 tests" in out and "\ncuInit: " in out
    fake = build / "lib" / "libsentinel_fake_cuda.so"
    status, out = device_test(build, fake, "--gtest_filter=*HasItsName", SENTINEL_FAKE_CUDA_FAIL="cuInit:1")
    assert status == 1 and "cuInit: CUDA_ERROR_ILLEGAL_ADDRESS" in out and "SKIPPED" not in out


@pytest.mark.parametrize("driver, skipped", [
    ("sentinel_fake_cuda", ["Kernels", "PatchedKernel", "Cupti"]), ("sentinel_fake_cuda_11", ["Kernels"]),
    ("sentinel_fake_cuda_pools", ["Kernels", "InManagedMemory"])])
def test_the_tests_of_a_device_pass_with_the_tests_driver(build, driver, skipped):
    library = build / "lib" / f"lib{driver}.so"
    status, out = device_test(build, library)
    assert status == 0, out
    told = re.findall(r"\[  SKIPPED \] DeviceTest[.](\w+) ", out)
    assert all(any(part in name for name in told) for part in skipped)
    assert ("OK ] DeviceTest.TrainingsComputeTheSameInManagedMemory" in out) == ("InManagedMemory" not in skipped)
    assert "OK ] DeviceTest.MemoryAsTheDriverGivesIt" in out and f"{library} launches no kernels" in out


def test_kernels_reach_what_the_memory_checker_sees(build, tmp_path):
    """In the tests that the checker is run on; and what a kernel writes wrong is found."""
    launching = over_the_tests_driver(build, tmp_path, KERNELS.replace("WRONG", ""))
    status, out = device_test(build, launching, CHECKED)
    assert status == 0, out
    for name in ("KernelsComputeTheSameInAFewChunks", "TrainingsComputeTheSameInManagedMemory",
                 "MemoryAsTheDriverGivesItHoldsWhatIsWritten"):
        assert f"OK ] DeviceTest.{name}" in out
    wrong = over_the_tests_driver(build, tmp_path, KERNELS.replace("WRONG", "+ 1"))
    status, out = device_test(build, wrong, CHECKED)
    failed = set(re.findall(r"FAILED  \] DeviceTest[.](\w+)", out))
    assert status == 1 and failed == {"KernelsComputeTheSameInAFewChunks", "TrainingsComputeTheSameInManagedMemory",
                                      "MemoryAsTheDriverGivesItHoldsWhatIsWritten"}


def test_movement_is_measured_with_the_tests_driver(build, tmp_path):
    fake = build / "lib" / "libsentinel_fake_cuda.so"
    done = subprocess.run([build / "bin" / "gpu_movement", tmp_path / "rates.json", "32"], capture_output=True,
                          text=True, env={**os.environ, "SENTINEL_CUDA": str(fake)}, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "rates.json").read_text())
    rates, mapping = told.pop("movement"), told.pop("mapping")
    assert not told and list(rates) == ["plain", "pools", "pools, one by one", "managed",
                                               "managed, one by one"]
    assert all(row[way] > 0 for row in rates.values() for way in ("in", "out", "both"))
    assert list(mapping) == ["alone", "of 16 together"]
    assert all(row[call] > 0 for row in mapping.values() for call in ("map", "unmap"))
    lines = done.stdout.splitlines()
    assert "100 %" in lines[1] and lines[-2].startswith("alone ") and lines[-1].startswith("of 16 together ")


def test_mapping_is_probed_with_the_tests_driver(build, tmp_path):
    """On an idle device; what the others are beside takes PyTorch and a device."""
    words = [sys.executable, GPU / "vmm_probe.py", tmp_path / "rows.json", "--loads", "idle"]
    place = {**os.environ, "SENTINEL_CUDA": str(build / "lib" / "libsentinel_fake_cuda.so")}
    done = subprocess.run(words, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["mib"], row["count"]) for row in rows][:4] == [(2, 1), (2, 16), (8, 4), (16, 1)] and len(rows) == 7
    assert all(row["load"] == "idle" and row["map_max"] >= row["map"] > 0 < row["unmap"] for row in rows)
    assert len(done.stdout.splitlines()) == 7
    place["SENTINEL_FAKE_CUDA_FAIL"] = "cuMemUnmap:1"
    done = subprocess.run(words, capture_output=True, text=True, env=place, timeout=100)
    assert done.returncode == 1 and done.stderr == "cuMemUnmap: error 700 of the CUDA driver\n"


# Counts what is mapped while the device computes or copies, and at other times.
MAPS = """
#include <dlfcn.h>
#include <cstddef>
#include <cstdint>
static int busy, maps[2];
extern "C" void device_is_busy(int is) { busy = is; }
extern "C" int maps_beside(int load) { return maps[load]; }
extern "C" int cuMemMap(std::uint64_t address, std::size_t bytes, std::size_t offset, std::uint64_t chunk,
                        std::uint64_t flags) {
  static const auto real = reinterpret_cast<decltype(&cuMemMap)>(dlsym(RTLD_NEXT, "cuMemMap"));
  return ++maps[busy], real(address, bytes, offset, chunk, flags);
}
"""
# What the probe asks of PyTorch. A device is busy from what it is given on until it is waited for.
TORCH = """
import ctypes, json, os, types
driver, uint8, given = ctypes.CDLL(os.environ["SENTINEL_CUDA"]), "uint8", []

class Stream:
    def query(self):
        return all(stream is not self for stream, what in given)
    def __enter__(self):
        cuda.here.append(self)
    def __exit__(self, *error):
        cuda.here.pop()

def give(what):
    given.append((cuda.here[-1], what))
    driver.device_is_busy(1)

def synchronize():
    streams = list(dict.fromkeys(stream for stream, what in given))
    told = [{what: sum(one == (stream, what) for one in given) for on, what in given if on is stream} for stream in streams]
    with open(os.environ["LOG"], "a") as log:
        log.write(json.dumps([told, driver.maps_beside(0), driver.maps_beside(1)]) + "\\n")
    given.clear()
    driver.device_is_busy(0)

class Tensor:
    def __init__(self, place):
        self.place = place
    def copy_(self, source, non_blocking=False):
        if non_blocking and "pageable" not in (self.place, source.place):
            give(f"{source.place} to {self.place}")

def empty(size, dtype, device=None, pin_memory=False):
    return Tensor(device or ("pinned" if pin_memory else "pageable"))

cuda = types.SimpleNamespace(Stream=Stream, here=[Stream()], current_stream=lambda: cuda.here[-1], synchronize=synchronize,
                             stream=lambda stream: stream, _sleep=lambda cycles: give("sleeps"))
"""


def test_mapping_is_probed_beside_what_a_device_does(build, tmp_path):
    """Each shape while a kernel runs, and while copies go both ways; whether they still do is told."""
    (tmp_path / "torch.py").write_text(TORCH)
    library, log = over_the_tests_driver(build, tmp_path, MAPS), tmp_path / "log"
    done = subprocess.run([sys.executable, GPU / "vmm_probe.py", tmp_path / "rows.json"], capture_output=True, text=True,
                          env={**os.environ, "SENTINEL_CUDA": str(library), "PYTHONPATH": str(tmp_path), "LOG": str(log)},
                          timeout=100)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["load"] for row in rows] == ["idle"] * 7 + ["kernel"] * 7 + ["copies"] * 7
    assert [row["load_still_ran"] for row in rows] == [False] * 7 + [True] * 14
    ended = [json.loads(line) for line in log.read_text().splitlines()]
    maps = [20 * row["count"] for row in rows[:7]]
    assert [told for told, _, _ in ended[1::2]] == [[{"sleeps": 1}]] * 7 + [[{"pinned to cuda": 600},
                                                                             {"cuda to pinned": 600}]] * 7
    assert {alone for _, alone, _ in ended} == {sum(maps)}  # on the idle device
    assert [beside for _, _, beside in ended[1::2]] == [sum((2 * maps)[:n + 1]) for n in range(14)]


def test_each_test_of_a_device_has_a_process_of_its_own(build):
    program, fake = build / "bin" / "gpu_device_test", build / "lib" / "libsentinel_fake_cuda.so"
    words = [sys.executable, GPU / "each_test.py", program, "--filter", "*Refus*:*Cupti*:*OwnFile*"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "SENTINEL_CUDA": str(fake)},
                          timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"^DeviceTest[.](\w+): ok$", done.stdout, re.M)
    assert len(names) == 4 and all("Refus" in name for name in names[:2])
    assert not any("Refus" in name for name in names[2:])


def test_so_much_of_the_hosts_memory_is_touched():
    measured = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run([sys.executable, "-c", measured, sys.executable, GPU / "touch_memory.py", "0.25"],
                          capture_output=True, text=True, timeout=100)
    told, most_kib = done.stdout.splitlines()
    assert re.match(r"0.[23] GiB of the host's memory touched in", told), done.stderr
    assert int(most_kib) > 200 << 10
