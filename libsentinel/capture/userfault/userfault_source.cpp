// Counts a page's openings by MINOR faults, and closes pages again as they leave the window.
#include "capture/userfault/userfault_source.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "capture/sampling.h"
#include "capture/userfault/event_cost.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;
constexpr std::size_t kSlack = 128;  // openings beyond the width while an instruction is stepped

std::uintptr_t page_of(std::uintptr_t address) { return address & ~(kPage - 1); }

}  // namespace

UserfaultSource::UserfaultSource(FaultLoop& loop, const Options& options)
    : loop_(loop),
      window_(std::max<std::uint32_t>(1, options.window_pages)),
      seed_(options.seed),
      around_(std::max<std::size_t>(kPage, options.around_bytes)),
      in_company_(options.in_company),
      threads_(window_ + kSlack) {
  if (!loop.can_count())
    throw Error(
        "counting page accesses: this kernel has no MINOR faults on shared memory, which "
        "came with Linux 5.14");
  info_ = {.name = "userfaultfd",
           .exact = true,
           .reads_writes_apart = true,
           .page_bytes = kPage,
           .event_cost_us = measured_event_cost_us(),
           .missed = in_company_ ? kLateness : 0};
  if (small()) single_step_.reset(new SingleStep(*this));
}

UserfaultSource::~UserfaultSource() = default;

// --- callers

int UserfaultSource::arm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard callers(callers_);
  int first = 0;
  for (const ArmRange& range : ranges) {
    const int rc = aligned(range) ? track(range) : -EINVAL;
    if (first == 0) first = rc;
  }
  const std::lock_guard hold(lock_);
  const int rc = unmapper_.flush();
  return first != 0 ? first : rc;
}

int UserfaultSource::track(const ArmRange& range) noexcept {
  const std::uintptr_t end = range.begin + range.bytes;
  const std::int64_t slot = counters_.slot_of(range.tag);
  if (slot < 0) return static_cast<int>(slot);
  if (const int rc = pages_.prepare(range.begin, end); rc != 0) return rc;
  const std::lock_guard hold(lock_);
  pages_.forget(range.begin, end);
  for_each_sampled(range.bytes / kPage, range.stride, seed_ ^ range.begin,
                   [&](std::size_t number, std::uint32_t weight, bool even) {
                     const auto page = range.begin + number * kPage;
                     *pages_.find(page) = {static_cast<std::uint32_t>(slot), weight, even, 0};
                     // Only the tracked pages: mapping the others again would cost more.
                     unmapper_.add(page, kPage);
                   });
  return 0;
}

int UserfaultSource::disarm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard callers(callers_);
  const std::lock_guard hold(lock_);
  for (const ArmRange& range : ranges) {
    if (!aligned(range)) return -EINVAL;
    // What is absent stays so until it is touched: most of what is disarmed is about to be freed.
    pages_.forget(range.begin, range.begin + range.bytes);
  }
  return 0;
}

int UserfaultSource::drain(std::vector<PageCount>& out) noexcept try {
  const std::lock_guard callers(callers_);
  // Room is made without the lock; whoever counts meanwhile makes another round necessary.
  while (const std::size_t touched = touched_.load(std::memory_order_acquire)) {
    out.reserve(out.size() + touched);
    const std::lock_guard hold(lock_);
    counters_.take(out);
    touched_ = counters_.touched();
  }
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;  // what has been counted stays for the next time
}

// --- faults

bool UserfaultSource::count(void* source, const Fault& fault) noexcept {
  return static_cast<UserfaultSource*>(source)->resolve(fault);
}

void UserfaultSource::answer(void* source, const Fault& fault) noexcept {
  auto& self = *static_cast<UserfaultSource*>(source);
  // Nothing to map: the access finds out for itself.
  if (!self.resolve(fault)) self.loop_.wake(page_of(fault.address), kPage);
}

// Pages leave the window before the new one is mapped: whoever waits for it finds them armed.
bool UserfaultSource::resolve(const Fault& fault) noexcept {
  const std::uintptr_t page = page_of(fault.address);
  const std::lock_guard hold(lock_);
  PageRecord* const record = pages_.find(page);
  if (!record || !record->armed()) return pass(page, record);
  ThreadState& thread = threads_.of(fault.tid);
  std::size_t floor = kInstruction;
  if (small() && wait_for_step(thread, fault, floor)) return true;
  open(thread, page, *record, fault.write);
  if (thread.step != Step::running) shrink(thread, floor);
  return loop_.cont(page, kPage) == 0;
}

// An untracked page, or an open one that was unmapped by somebody else or has two faults waiting.
bool UserfaultSource::pass(std::uintptr_t page, const PageRecord* record) noexcept {
  if (record && record->tracked()) return loop_.cont(page, kPage) == 0;
  const std::uintptr_t begin = page - page % around_, end = begin + around_;
  const std::size_t run = pages_.untracked_run(page, (end - page) / kPage) * kPage;
  map_untracked(begin, page);
  map_untracked(page + run, end);
  return loop_.cont_around(page, run) == 0;  // last: who is woken may take this processor
}

// Spares what lies between two tracked pages a fault of its own. What is not in the file, or is
// mapped already, is left as it is.
void UserfaultSource::map_untracked(std::uintptr_t page, std::uintptr_t end) noexcept {
  while (page < end) {
    const std::size_t run = pages_.untracked_run(page, (end - page) / kPage) * kPage;
    if (run > 0) loop_.cont_unless_mapped(page, run);
    page += run + kPage;
  }
}

void UserfaultSource::open(ThreadState& thread, std::uintptr_t page, PageRecord& record,
                           bool write) noexcept {
  record.opening = ++serial_;
  if (thread.window.full()) arm_again(thread.window.pop());
  thread.window.push(page, record.opening, record.weight);
  counters_.count(record.slot, record.weight, record.even, write);
  touched_.store(counters_.touched(), std::memory_order_release);
}

void UserfaultSource::shrink(ThreadState& thread, std::size_t floor) noexcept {
  while (thread.window.leaves(window_, floor)) arm_again(thread.window.pop());
  if (!unmapper_.empty()) flush_pending();
}

// Exactly counted pages are armed at once. Others wait for company: each zap interrupts every other
// running thread.
void UserfaultSource::arm_again(const Opening& left) noexcept {
  if (left.weight > 1 || in_company_) {
    pending_[pending_count_++] = left;
    pending_pages_ += left.weight;
    if (pending_count_ == kCompany ||
        static_cast<double>(pending_pages_) >= 2 * kLateness * static_cast<double>(window_))
      flush_pending();
    return;
  }
  PageRecord* const record = pages_.find(left.page);
  if (!record || record->opening != left.serial) return;  // disarmed, or armed anew
  record->opening = 0;
  unmapper_.add(left.page, kPage);
}

void UserfaultSource::flush_pending() noexcept {
  for (std::size_t i = 0; i < pending_count_; ++i) {
    PageRecord* const record = pages_.find(pending_[i].page);
    if (!record || record->opening != pending_[i].serial) continue;
    record->opening = 0;
    unmapper_.add(pending_[i].page, kPage);
  }
  pending_count_ = 0;
  pending_pages_ = 0;
  unmapper_.flush();
}

// --- small windows

// Whether the fault is left to the faulting thread, which will open the page in begin(). `floor`:
// the pages that must stay open where it cannot be.
bool UserfaultSource::wait_for_step(ThreadState& thread, const Fault& fault,
                                    std::size_t& floor) noexcept {
  floor = 0;
  if (thread.step == Step::running) {
    // The step was never completed (the instruction was left by a signal handler's longjmp).
    if (thread.window.size() >= window_ + kExact) thread.step = Step::none;
    return false;
  }
  const Spot spot = thread.spot.read(fault.tid);
  if (spot == Spot::kernel) floor = kSystemCall;
  if (spot == Spot::trap_blocked || spot == Spot::elsewhere) floor = kInstruction;
  if (spot != Spot::program) return false;
  if (thread.step == Step::requested) return true;  // the signal is on its way
  const std::uint32_t weight = pages_.find(fault.address)->weight;
  if (!thread.window.leaves(window_, 0, weight)) return false;  // nothing to be armed again
  thread.step = Step::requested;
  thread.wants = page_of(fault.address);
  thread.wants_write = fault.write;
  if (single_step_->request(fault.tid) == 0) return true;
  thread.step = Step::none;
  floor = kInstruction;
  return false;
}

bool UserfaultSource::begin(pid_t tid) noexcept {
  const std::lock_guard hold(lock_);
  ThreadState* const thread = threads_.find(tid);
  if (!thread || thread->step != Step::requested) return false;
  thread->step = Step::none;
  PageRecord* const record = pages_.find(thread->wants);
  if (!record || !record->armed()) return false;  // somebody else was faster
  open(*thread, thread->wants, *record, thread->wants_write);
  thread->step = Step::running;
  loop_.cont(thread->wants, kPage);
  return true;
}

bool UserfaultSource::end(pid_t tid) noexcept {
  const std::lock_guard hold(lock_);
  ThreadState* const thread = threads_.find(tid);
  if (!thread || thread->step != Step::running) return false;
  thread->step = Step::none;
  shrink(*thread, 0);
  return true;
}

}  // namespace sentinel
