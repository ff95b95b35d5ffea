// What the kernel and the hardware offer.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/files.h"
#include "base/units.h"
#include "capture/kernel_source.h"
#include "capture/samples/sample_threads.h"
#include "capture/userfault/availability.h"
#include "engine/granule.h"
#include "engine/host/limits.h"
#include "engine/io/executors.h"
#include "engine/io/slow_file.h"
#include "host/doctor.h"
#include "runtime/limit/gpu_counting.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Nothing is lost but speed: so the remedy is one that fits, or none.
std::string remedy_of_uring(int code) {
  const auto disabled = first_line("/proc/sys/kernel/io_uring_disabled");
  if (disabled == "1" || disabled == "2") return "as root, sysctl -w kernel.io_uring_disabled=0";
  if (code == ENOMEM) return "raise the limit of locked memory (ulimit -l)";
  if (code == ENOSYS || code == EPERM)
    return "in a container, allow io_uring_setup, io_uring_enter and io_uring_register in the "
           "seccomp profile (docker run --security-opt seccomp=PROFILE)";
  return "use Linux 5.6 or later";
}

Finding io_uring(const SlowFile& file) {
  try {
    make_uring_executor(file, {.frame_bytes = kGranule});
    return {"io_uring", true, "permitted", ""};
  } catch (const Error& error) {
    return {"io_uring", false, fmt::format("{}; threads do the transfers", error.what()),
            remedy_of_uring(error.code())};
  }
}

Finding direct_io(const SlowFile& file) {
  if (file.direct()) return {"O_DIRECT", true, "transfers bypass the page cache", ""};
  return {"O_DIRECT", false,
          "this file system has none: transfers go through the page cache, which is memory",
          "name a directory on ext4, xfs or btrfs with --slow DIR"};
}

Finding free_space(const SlowFile& file) {
  constexpr auto modest = 16_GiB;
  const auto bytes = file.capacity();
  return {"free space", bytes >= modest, print_bytes(bytes),
          bytes >= modest
              ? ""
              : "what leaves memory has to fit: name another directory with --slow DIR"};
}

// The chosen one stands in brackets: "always [madvise] never".
std::string bracketed(const std::string& text) {
  const auto from = text.find('['), to = text.find(']');
  return from == text.npos || to == text.npos ? "" : text.substr(from + 1, to - from - 1);
}

Finding huge_pages() {
  const auto chosen = bracketed(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  const bool usable = chosen == "always" || chosen == "madvise";
  return {"huge pages", usable, chosen.empty() ? "this kernel has none" : chosen,
          usable ? ""
          : chosen.empty()
              ? "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE; frames are 2 MiB"
              : "as root, echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; frames "
                "are 2 MiB"};
}

Finding memory_cgroup() {
  const bool v2 =
      read_text("/sys/fs/cgroup/cgroup.controllers").find("memory") != std::string::npos;
  const bool v1 = fs::exists("/sys/fs/cgroup/memory");
  if (!v1 && !v2)
    return {"memory cgroup", false, "no memory controller",
            "none needed: the budget does not depend on it"};
  const auto left = cgroup_headroom();
  return {"memory cgroup", true,
          fmt::format("version {}, {}", v2 ? 2 : 1,
                      left ? print_bytes(*left) + " may still be used" : "no limit"),
          ""};
}

Finding physical_memory() { return {"physical memory", true, print_bytes(physical_bytes()), ""}; }

Finding kernel_patch() {
  const int code = KernelSource::probe();
  if (code == 0) return {"kernel source", true, "/dev/sentinel counts every page", ""};
  if (code == -ENOENT)
    return {"kernel source", false, "this kernel has no /dev/sentinel",
            "none needed: userfaultfd counts the same. To have it: kernel/README.md"};
  return {"kernel source", false, fmt::format("/dev/sentinel: {}", std::strerror(-code)),
          code == -EPROTO
              ? "the kernel's version of the interface is another: build its patches anew"
              : "let this user open it: as root, setfacl -m u:USER:rw /dev/sentinel"};
}

Finding hardware_samples() {
  const auto found = find_sample_events();
  if (found.events.empty()) return {"hardware samples", false, found.reason, found.remedy};
  return {"hardware samples", true, fmt::format("{}: use --count samples", found.names()), ""};
}

// The first GPU, and who can count its accesses, which has not been verified on a device yet.
Findings look_at_gpu(const SessionOptions& set) try {
  auto options = set;
  options.gpu.device = 0;
  const auto driver = gpu::open_driver(0, options.gpu.cuda);
  constexpr const char* kOtherwise = "none needed: op inputs and outputs are taken for accesses";
  const auto why = gpu::why_not_kernel(*driver), no_cupti = gpu::why_not_cupti(*driver, options);
  return {
      {"CUDA", true,
       fmt::format("gpu0 has {} free: --tiers fast=gpu0,slow=host",
                   print_bytes(driver->free_bytes())),
       ""},
      {"GPU kernel source", why.empty(),
       why.empty() ? fmt::format("sentinel record --count kernel ({}), not verified on hardware",
                                 gpu::name_of(driver->pageable()))
                   : why,
       why.empty() ? "" : kOtherwise},
      {"GPU page faults", no_cupti.empty(),
       no_cupti.empty() ? "--count cupti, in managed memory, not verified on hardware" : no_cupti,
       no_cupti.empty() ? "" : kOtherwise}};
} catch (const Error& error) {
  return {{"CUDA", false, error.what(), "trainings on the CPU need none"}};
}

}  // namespace

Findings look_at_capture() {
  Findings findings;
  for (const auto& mechanism : judge_capture(probe_capture()))
    findings.push_back({mechanism.name, mechanism.available,
                        mechanism.available ? "permitted" : mechanism.reason, mechanism.remedy});
  return findings;
}

Findings look_at_slow_tier(const std::string& directory) {
  try {
    const SlowFile file({.directory = directory, .frame_bytes = kGranule});
    return {{"directory", true, directory, ""}, direct_io(file), io_uring(file), free_space(file)};
  } catch (const Error& error) {
    return {{"directory", false, error.what(), "name a directory on an SSD with --slow DIR"}};
  }
}

Findings look_at_memory() {
  Findings findings{physical_memory(), huge_pages(), memory_cgroup()};
  for (auto& finding : look_at_nodes()) findings.push_back(std::move(finding));
  return findings;
}

Findings look_at_hardware() {
  Findings findings{kernel_patch(), hardware_samples()};
  try {
    for (auto& finding : look_at_gpu(options_from_environment()))
      findings.push_back(std::move(finding));
  } catch (const Error& error) {
    findings.push_back({"SENTINEL_ variables", false, error.what(), "correct it, or unset it"});
  }
  return findings;
}

}  // namespace sentinel::cli
