// Opens a page of a memory file again and again, and takes the median time.
#include "capture/userfault/event_cost.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>

#include "capture/userfault/fault_loop.h"

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096;
using Clock = std::chrono::steady_clock;

// Fills the page first, so that only mapping it is measured.
double time_opening(FaultLoop& loop, unsigned char* page) {
  loop.cont(reinterpret_cast<std::uintptr_t>(page), kPage);
  const auto begin = Clock::now();
  madvise(page, kPage, MADV_DONTNEED);
  *const_cast<volatile unsigned char*>(page) = 1;
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double measure(int file) {
  void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return 0;
  auto* const page = static_cast<unsigned char*>(at);
  *page = 1;
  double median = 0;
  {
    const auto loop = FaultLoop::open();
    if (loop->register_range(reinterpret_cast<std::uintptr_t>(at), kPage, false, true) == 0) {
      std::array<double, 33> times;
      for (double& time : times) time = time_opening(*loop, page);
      std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
      median = times[times.size() / 2];
    }
  }
  munmap(at, kPage);
  return median;
}

double measure() noexcept try {
  const int file = memfd_create("sentinel-cost", MFD_CLOEXEC);
  if (file < 0) return 0;
  const double cost = ftruncate(file, kPage) == 0 ? measure(file) : 0;
  close(file);
  return cost;
} catch (const std::exception&) {
  return 0;
}

}  // namespace

double measured_event_cost_us() noexcept {
  static const double cost = measure();
  return cost;
}

}  // namespace sentinel
