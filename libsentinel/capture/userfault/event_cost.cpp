// Opens a page again and again, and takes the median time.
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

// One page of a memory file, or of private memory, and how it is opened and closed.
struct Page {
  FaultLoop& loop;
  unsigned char* at;
  bool is_private;

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(at); }
  int registered() const {
    return is_private ? loop.register_for_bars(address(), kPage, false)
                      : loop.register_range(address(), kPage, false, true);
  }
  void open() const { is_private ? loop.unbar(address(), kPage) : loop.cont(address(), kPage); }
  void close() const {
    is_private ? loop.bar(address(), kPage) : madvise(at, kPage, MADV_DONTNEED);
  }
};

// Opens the page first, so that only opening it is measured.
double time_opening(const Page& page) {
  page.open();
  const auto begin = Clock::now();
  page.close();
  *const_cast<volatile unsigned char*>(page.at) = 1;
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// `file`: -1 for private memory.
double measure(int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, flags, file, 0);
  if (at == MAP_FAILED) return 0;
  auto* const bytes = static_cast<unsigned char*>(at);
  *bytes = 1;
  double median = 0;
  {
    const auto loop = FaultLoop::open();
    const Page page{*loop, bytes, file < 0};
    if (page.registered() == 0) {
      std::array<double, 33> times;
      for (double& time : times) time = time_opening(page);
      std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
      median = times[times.size() / 2];
    }
  }
  munmap(at, kPage);
  return median;
}

double measure_shared() noexcept try {
  const int file = memfd_create("sentinel-cost", MFD_CLOEXEC);
  if (file < 0) return 0;
  const double cost = ftruncate(file, kPage) == 0 ? measure(file) : 0;
  close(file);
  return cost;
} catch (const std::exception&) {
  return 0;
}

double measure_private() noexcept try { return measure(-1); } catch (const std::exception&) {
  return 0;
}

}  // namespace

double measured_event_cost_us() noexcept {
  static const double cost = measure_shared();
  return cost;
}

double measured_bar_cost_us() noexcept {
  static const double cost = measure_private();
  return cost;
}

}  // namespace sentinel
