// Closes pages by barring them, and opens them by unbarring.
#include "capture/userfault/rwp_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "capture/sampling.h"
#include "capture/userfault/event_cost.h"
#include "sentinel/error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;

class BarGate final : public PageGate {
 public:
  BarGate(FaultLoop& loop, const RwpSource::Options& options)
      : loop_(loop),
        around_(std::max<std::size_t>(kPage, options.around_bytes)),
        populates_(options.populates) {}

  // Absent pages become the zero page: whoever writes first makes the page, as ever. What is still
  // barred since an earlier life would be a fault each.
  int prepare(const ArmRange& range, std::uint64_t seed) noexcept override {
    if (!populates_ || range.bytes == 0) return 0;
    int first = loop_.unbar(range.begin, range.bytes);
    const auto populate = [&](std::uintptr_t begin, std::size_t bytes) {
      if (first == 0 && madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_READ) != 0)
        first = -errno;
    };
    if (range.stride == 1) {
      populate(range.begin, range.bytes);
    } else {
      for_each_sampled(range.bytes / kPage, range.stride, seed,
                       [&](std::size_t number, std::uint32_t, bool) {
                         populate(range.begin + number * kPage, kPage);
                       });
    }
    return first;
  }

  // What is unmapped by now needs nothing.
  int let_go(std::uintptr_t begin, std::size_t bytes) noexcept override {
    const int code = bytes != 0 ? loop_.unbar(begin, bytes) : 0;
    return code == -ENOENT ? 0 : code;
  }

  void close(std::uintptr_t page) noexcept override {
    if (count_ > 0 && ranges_[count_ - 1].begin + ranges_[count_ - 1].bytes == page) {
      ranges_[count_ - 1].bytes += kPage;
      return;
    }
    if (count_ == kMost) early_ = flush();
    ranges_[count_++] = {page, kPage};
  }

  bool closes_some() const noexcept override { return count_ > 0; }

  int flush() noexcept override {
    int first = early_;
    for (std::size_t i = 0; i < count_; ++i) {
      const int code = bar(ranges_[i]);
      if (first == 0) first = code;
    }
    count_ = 0;
    early_ = 0;
    return first;
  }

  int open(std::uintptr_t page) noexcept override { return loop_.unbar(page, kPage); }

  // Spares the untracked pages around it a fault of their own, as far as they are registered.
  int open_untracked(std::uintptr_t page, PageIndex& pages) noexcept override {
    const std::uintptr_t begin = page - page % around_, end = begin + around_;
    for (std::uintptr_t at = begin; at < end;) {
      const std::size_t run = pages.untracked_run(at, (end - at) / kPage) * kPage;
      if (run > 0) loop_.unbar(at, run, FaultLoop::Wake::no);
      at += run + kPage;
    }
    return loop_.unbar(page, kPage);  // last: who is woken may take this processor
  }

 private:
  static constexpr std::size_t kMost = 256;
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };

  // A part that is not registered keeps the rest from being barred, unless it is asked for alone.
  int bar(const Range& range) noexcept {
    const int whole = loop_.bar(range.begin, range.bytes);
    if (whole != -ENOENT || range.bytes == kPage) return whole;
    for (std::size_t at = 0; at < range.bytes; at += kPage) loop_.bar(range.begin + at, kPage);
    return whole;
  }

  FaultLoop& loop_;
  const std::size_t around_;
  const bool populates_;
  std::array<Range, kMost> ranges_{};
  std::size_t count_ = 0;
  int early_ = 0;  // of what was flushed because there was no more room
};

FaultLoop& that_bars(FaultLoop& loop) {
  if (!loop.can_bar())
    throw Error(
        "counting private memory where it lies: this kernel's userfaultfd has no read-write "
        "protection (UFFD_FEATURE_RWP)");
  return loop;
}

}  // namespace

RwpSource::RwpSource(FaultLoop& loop, const Options& options)
    : OpeningSource(std::make_unique<BarGate>(that_bars(loop), options), options, "rwp",
                    measured_bar_cost_us()),
      loop_(loop) {}

bool RwpSource::count(void* source, const Fault& fault) noexcept {
  return static_cast<RwpSource*>(source)->resolve(fault);
}

void RwpSource::answer(void* source, const Fault& fault) noexcept {
  // Nothing to unbar: the access finds out for itself.
  if (!count(source, fault))
    static_cast<RwpSource*>(source)->loop_.wake(fault.address & ~(kPage - 1), kPage);
}

}  // namespace sentinel
