// What one counted opening costs: fault, count, re-arm. The kernel's source beside userfaultfd's,
// on the same pages, in the same process, medians of rounds. Exits 77 where either cannot be had.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "capture/kernel_source.h"
#include "capture/userfault/userfault_source.h"
#include "sentinel/error.h"

namespace {

using namespace sentinel;
constexpr std::size_t kPage = 4096, kPages = 1024;
constexpr std::uint32_t kWindow = 64;  // so that each sweep opens every page again
constexpr int kRounds = 9;

unsigned char* map(int flags, int file) {
  void* const at = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, flags, file, 0);
  if (at == MAP_FAILED) throw Error("mapping memory", errno);
  std::memset(at, 1, kPages * kPage);
  return static_cast<unsigned char*>(at);
}

// Microseconds an opening; throws if the source did not count each.
double time_openings(AccessSource& source, unsigned char* at) {
  const ArmRange all{reinterpret_cast<std::uintptr_t>(at), kPages * kPage, 1, 1};
  if (const int code = source.arm({&all, 1}); code != 0) throw Error("arming", -code);
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < kPages; ++i)
      *const_cast<volatile unsigned char*>(at + i * kPage) = 1;
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    us.push_back(spent.count() / kPages);
  }
  std::vector<PageCount> counts;
  source.drain(counts);
  if (counts.size() != 1 || counts[0].writes != kRounds * kPages)
    throw Error("not every opening was counted");
  std::nth_element(us.begin(), us.begin() + kRounds / 2, us.end());
  return us[kRounds / 2];
}

double in_the_kernel() {
  KernelSource source({.window_pages = kWindow});
  return time_openings(source, map(MAP_PRIVATE | MAP_ANONYMOUS, -1));
}

double by_userfaultfd() {
  const int file = memfd_create("counting", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kPages * kPage) != 0) throw Error("a memory file", errno);
  auto* const at = map(MAP_SHARED, file);
  const auto loop = FaultLoop::open();
  UserfaultSource source(*loop, {.window_pages = kWindow});
  loop->register_range(reinterpret_cast<std::uintptr_t>(at), kPages * kPage, false, true);
  loop->set_minor_handler(&UserfaultSource::answer, &source);
  const double us = time_openings(source, at);
  loop->set_minor_handler(nullptr, nullptr);
  return us;
}

}  // namespace

int main() try {
  if (const int code = KernelSource::probe(); code != 0) {
    fmt::print(stderr, "no patched kernel: {}\n", std::strerror(-code));
    return 77;
  }
  const double kernel = in_the_kernel(), userfaultfd = by_userfaultfd();
  fmt::print(
      "kernel {:.2f} us an opening\nuserfaultfd {:.2f} us an opening\n"
      "kernel / userfaultfd: {:.3f}\n",
      kernel, userfaultfd, kernel / userfaultfd);
  return 0;
} catch (const sentinel::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
