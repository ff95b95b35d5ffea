// Chooses the kernel or CUPTI as the source of a GPU's counts, and says why neither will do.
#include "runtime/limit/gpu_counting.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "capture/kernel_source.h"
#include "engine/gpu/page_faults.h"
#include "measure/measure.h"
#include "sentinel/error.h"

namespace sentinel::gpu {
namespace {

constexpr const char* kOtherwise = "; without --count op inputs and outputs are taken for accesses";

void require_recording(const SessionOptions& options) {
  if (options.mode != Mode::record)
    throw Error(
        "--count kernel: a GPU's accesses to memory that stays on the host are counted; use it "
        "with sentinel record, and the profile with sentinel run --profile");
  if (options.counting.window_pages != 0 && options.counting.window_pages < kLeastWindow)
    throw Error(
        fmt::format("--window {}: a GPU's driver asks for many pages at once; give {} or more",
                    options.counting.window_pages, kLeastWindow));
}

void require_managed(const SessionOptions& options) {
  if (options.gpu.host_bytes != 0 || options.gpu.memory == "pools")
    throw Error(
        "--count cupti: page faults are of managed memory; give --gpu-memory managed, and no "
        "--host-memory");
}

}  // namespace

const char* name_of(Pageable pageable) {
  return pageable == Pageable::mirrored ? "hmm" : pageable == Pageable::shared ? "ats" : "";
}

bool counted(const SessionOptions& options) {
  return options.gpu.device &&
         (options.counting.source == "kernel" || options.counting.source == kCupti);
}

std::string why_not_kernel(Driver& driver) {
  std::string why;
  if (driver.pageable() == Pageable::no)
    why =
        "the device does not use pageable memory (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS is "
        "0), which takes HMM or ATS: NVIDIA's open kernel modules on Linux 6.1.24 or later, or a "
        "machine like Grace Hopper";
  if (const int code = KernelSource::probe(); code != 0)
    why += fmt::format("{}the patched kernel (kernel/README.md) is not there: /dev/sentinel: {}",
                       why.empty() ? "" : "; and ", std::strerror(-code));
  return why;
}

std::string why_not_cupti(Driver& driver, const SessionOptions& options) try {
  if (!driver.faults())
    return "kernels of this device do not bring managed memory page by page "
           "(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0)";
  open_cupti(options.gpu.cupti, *options.gpu.device);
  return "";
} catch (const Error& error) {
  return error.what();
}

void require_source(const SessionOptions& options, Driver* driver) {
  if (options.counting.source == "userfaultfd" || options.counting.source == kRwp)
    throw Error(fmt::format(
        "--count {}: a GPU cannot wait for it: the kernel answers a device's fault in such memory "
        "with SIGBUS; take kernel, cupti or ops{}",
        options.counting.source, kOtherwise));
  if (options.counting.source == "samples")
    throw Error(fmt::format(
        "--count samples: the processor samples its own accesses, not a GPU's; take kernel, "
        "cupti or ops{}",
        kOtherwise));
  if (!counted(options)) return;
  const bool kernel = options.counting.source == "kernel";
  kernel ? require_recording(options) : require_managed(options);
  std::unique_ptr<Driver> own;
  if (driver == nullptr) {
    if (!kernel && !cupti_is_here(options.gpu.cupti)) return;  // what PyTorch brings may be
    driver = (own = open_gpu(options)).get();
  }
  const auto why = kernel ? why_not_kernel(*driver) : why_not_cupti(*driver, options);
  if (!why.empty())
    throw Error(fmt::format("--count {}: {}{}", options.counting.source, why, kOtherwise));
}

}  // namespace sentinel::gpu
