// Counts a page's openings by its faults, and closes pages again as they leave the window.
#include "capture/userfault/opening_source.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "capture/sampling.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;
constexpr std::size_t kSlack = 128;  // openings beyond the width while an instruction is stepped

std::uintptr_t page_of(std::uintptr_t address) { return address & ~(kPage - 1); }

}  // namespace

OpeningSource::OpeningSource(std::unique_ptr<PageGate> gate, const OpeningOptions& options,
                             std::string name, double event_cost_us)
    : gate_(std::move(gate)),
      window_(std::max<std::uint32_t>(1, options.window_pages)),
      seed_(options.seed),
      in_company_(options.in_company),
      info_{.name = std::move(name),
            .exact = true,
            .reads_writes_apart = true,
            .page_bytes = kPage,
            .event_cost_us = event_cost_us,
            .missed = options.in_company ? kLateness : 0},
      threads_(window_ + kSlack) {
  if (small()) single_step_.reset(new SingleStep(*this));
}

OpeningSource::~OpeningSource() = default;

// --- callers

int OpeningSource::arm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard callers(callers_);
  int first = 0;
  for (const ArmRange& range : ranges) {
    const int rc = aligned(range) ? track(range) : -EINVAL;
    if (first == 0) first = rc;
  }
  const std::lock_guard hold(lock_);
  const int rc = gate_->flush();
  return first != 0 ? first : rc;
}

int OpeningSource::track(const ArmRange& range) noexcept {
  const std::uintptr_t end = range.begin + range.bytes;
  const std::int64_t slot = counters_.slot_of(range.tag);
  if (slot < 0) return static_cast<int>(slot);
  if (const int rc = pages_.prepare(range.begin, end); rc != 0) return rc;
  const auto seed = seed_ ^ range.begin;
  {
    const std::lock_guard hold(lock_);
    pages_.forget(range.begin, end);
  }
  if (const int rc = gate_->prepare(range, seed); rc != 0) return rc;
  const std::lock_guard hold(lock_);
  for_each_sampled(range.bytes / kPage, range.stride, seed,
                   [&](std::size_t number, std::uint32_t weight, bool even) {
                     const auto page = range.begin + number * kPage;
                     *pages_.find(page) = {static_cast<std::uint32_t>(slot), weight, even, 0};
                     // Only the tracked pages: opening the others again would cost more.
                     gate_->close(page);
                   });
  return 0;
}

int OpeningSource::disarm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard callers(callers_);
  int first = 0;
  for (const ArmRange& range : ranges) {
    if (!aligned(range)) return -EINVAL;
    {
      const std::lock_guard hold(lock_);
      pages_.forget(range.begin, range.begin + range.bytes);
    }
    const int rc = gate_->let_go(range.begin, range.bytes);
    if (first == 0) first = rc;
  }
  return first;
}

int OpeningSource::drain(std::vector<PageCount>& out) noexcept try {
  const std::lock_guard callers(callers_);
  // Room is made without the lock; whoever counts meanwhile makes another round necessary.
  while (const std::size_t touched = touched_.load(std::memory_order_acquire)) {
    out.reserve(out.size() + touched);
    const std::lock_guard hold(lock_);
    counters_.take(out);
    touched_ = counters_.touched();
  }
  const std::lock_guard hold(lock_);
  return std::exchange(not_armed_again_, 0);
} catch (const std::bad_alloc&) {
  return -ENOMEM;  // what has been counted stays for the next time
}

// --- faults

// Pages leave the window before the new one is opened: whoever waits for it finds them armed.
// A page that is not armed is untracked, or open and yet closed: by somebody else, or it has two
// faults waiting.
bool OpeningSource::resolve(const Fault& fault) noexcept {
  const std::uintptr_t page = page_of(fault.address);
  const std::lock_guard hold(lock_);
  PageRecord* const record = pages_.find(page);
  if (!record || !record->tracked()) return gate_->open_untracked(page, pages_) == 0;
  if (!record->armed()) return gate_->open(page) == 0;
  ThreadState& thread = threads_.of(fault.tid);
  std::size_t floor = kInstruction;
  if (small() && wait_for_step(thread, fault, floor)) return true;
  open(thread, page, *record, fault.write);
  if (thread.step != Step::running) shrink(thread, floor);
  return gate_->open(page) == 0;
}

void OpeningSource::open(ThreadState& thread, std::uintptr_t page, PageRecord& record,
                         bool write) noexcept {
  record.opening = ++serial_;
  if (thread.window.full()) arm_again(thread.window.pop());
  thread.window.push(page, record.opening, record.weight);
  counters_.count(record.slot, record.weight, record.even, write);
  touched_.store(counters_.touched(), std::memory_order_release);
}

void OpeningSource::shrink(ThreadState& thread, std::size_t floor) noexcept {
  while (thread.window.leaves(window_, floor)) arm_again(thread.window.pop());
  if (gate_->closes_some()) flush_pending();
}

// Exactly counted pages are armed at once. Others wait for company: each zap interrupts every other
// running thread.
void OpeningSource::arm_again(const Opening& left) noexcept {
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
  gate_->close(left.page);
}

void OpeningSource::flush_pending() noexcept {
  for (std::size_t i = 0; i < pending_count_; ++i) {
    PageRecord* const record = pages_.find(pending_[i].page);
    if (!record || record->opening != pending_[i].serial) continue;
    record->opening = 0;
    gate_->close(pending_[i].page);
  }
  pending_count_ = 0;
  pending_pages_ = 0;
  const int rc = gate_->flush();
  if (not_armed_again_ == 0) not_armed_again_ = rc;
}

// --- small windows

// Whether the fault is left to the faulting thread, which will open the page in begin(). `floor`:
// the pages that must stay open where it cannot be.
bool OpeningSource::wait_for_step(ThreadState& thread, const Fault& fault,
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

bool OpeningSource::begin(pid_t tid) noexcept {
  const std::lock_guard hold(lock_);
  ThreadState* const thread = threads_.find(tid);
  if (!thread || thread->step != Step::requested) return false;
  thread->step = Step::none;
  PageRecord* const record = pages_.find(thread->wants);
  if (!record || !record->armed()) return false;  // somebody else was faster
  open(*thread, thread->wants, *record, thread->wants_write);
  thread->step = Step::running;
  gate_->open(thread->wants);
  return true;
}

bool OpeningSource::end(pid_t tid) noexcept {
  const std::lock_guard hold(lock_);
  ThreadState* const thread = threads_.find(tid);
  if (!thread || thread->step != Step::running) return false;
  thread->step = Step::none;
  shrink(*thread, 0);
  return true;
}

}  // namespace sentinel
