// Closes pages by taking them out of the page table, and opens them by UFFDIO_CONTINUE.
#include "capture/userfault/userfault_source.h"

#include <algorithm>

#include "capture/userfault/event_cost.h"
#include "capture/userfault/page_unmapper.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;

// What is disarmed stays absent until it is touched: most of it is about to be freed.
class MinorGate final : public PageGate {
 public:
  MinorGate(FaultLoop& loop, std::size_t around)
      : loop_(loop), around_(std::max<std::size_t>(kPage, around)) {}

  void close(std::uintptr_t page) noexcept override { unmapper_.add(page, kPage); }
  bool closes_some() const noexcept override { return !unmapper_.empty(); }
  int flush() noexcept override { return unmapper_.flush(); }
  int open(std::uintptr_t page) noexcept override { return loop_.cont(page, kPage); }

  int open_untracked(std::uintptr_t page, PageIndex& pages) noexcept override {
    const std::uintptr_t begin = page - page % around_, end = begin + around_;
    const std::size_t run = pages.untracked_run(page, (end - page) / kPage) * kPage;
    map_untracked(begin, page, pages);
    map_untracked(page + run, end, pages);
    return loop_.cont_around(page, run);  // last: who is woken may take this processor
  }

 private:
  // Spares what lies between two tracked pages a fault of its own. What is not in the file, or is
  // mapped already, is left as it is.
  void map_untracked(std::uintptr_t page, std::uintptr_t end, PageIndex& pages) noexcept {
    while (page < end) {
      const std::size_t run = pages.untracked_run(page, (end - page) / kPage) * kPage;
      if (run > 0) loop_.cont_unless_mapped(page, run);
      page += run + kPage;
    }
  }

  FaultLoop& loop_;
  const std::size_t around_;
  PageUnmapper unmapper_;
};

FaultLoop& that_counts(FaultLoop& loop) {
  if (!loop.can_count())
    throw Error(
        "counting page accesses: this kernel has no MINOR faults on shared memory, which "
        "came with Linux 5.14");
  return loop;
}

}  // namespace

UserfaultSource::UserfaultSource(FaultLoop& loop, const Options& options)
    : OpeningSource(std::make_unique<MinorGate>(that_counts(loop), options.around_bytes), options,
                    "userfaultfd", measured_event_cost_us()),
      loop_(loop) {}

bool UserfaultSource::count(void* source, const Fault& fault) noexcept {
  return static_cast<UserfaultSource*>(source)->resolve(fault);
}

void UserfaultSource::answer(void* source, const Fault& fault) noexcept {
  // Nothing to map: the access finds out for itself.
  if (!count(source, fault))
    static_cast<UserfaultSource*>(source)->loop_.wake(fault.address & ~(kPage - 1), kPage);
}

}  // namespace sentinel
