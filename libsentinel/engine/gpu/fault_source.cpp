// Counts the page faults that CUPTI tells, range by range.
#include "engine/gpu/fault_source.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::gpu {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;
constexpr std::uintptr_t kBlock = 2u << 20;  // in which the driver brings neighbours along

}  // namespace

// An error of the driver's has a name, which failure() tells: a number has none.
template <class F>
int FaultSource::answered(F&& f) noexcept {
  failed("");
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const Error& error) {
    failed(error.what());
    return -EIO;
  }
}

void FaultSource::failed(const char* what) noexcept try {
  failure_ = what;
} catch (const std::bad_alloc&) {
  failure_.clear();
}

std::string FaultSource::failure() const {
  const std::lock_guard hold(lock_);
  return failure_;
}

FaultSource::FaultSource(Driver& driver, std::unique_ptr<PageFaults> faults, std::uintptr_t begin,
                         std::uint64_t bytes)
    : driver_(driver),
      begin_(begin),
      end_(begin + bytes),
      info_{.name = "cupti",
            .exact = false,
            .window = false,
            .whole = true,
            .reads_writes_apart = true,
            .page_bytes = kPage},
      faults_(std::move(faults)) {
  stream_ = driver_.make_stream();
  try {
    moved_ = driver_.make_event();
  } catch (...) {
    end();
    throw;
  }
}

FaultSource::~FaultSource() { end(); }

void FaultSource::end() noexcept try {
  if (moved_ != nullptr) driver_.destroy_event(moved_);
  driver_.destroy_stream(stream_);
} catch (const Error&) {  // nobody is left to tell; the driver may have gone first
}

int FaultSource::arm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard hold(lock_);
  return answered([&] {
    collect();
    int first = 0;
    for (const ArmRange& range : ranges) {
      const int code = aligned(range) ? track(range) : -EINVAL;
      if (first == 0) first = code;
    }
    wait();
    return first;
  });
}

int FaultSource::track(const ArmRange& range) {
  const auto end = range.begin + range.bytes;
  const auto slot = counters_.slot_of(range.tag);
  if (slot < 0) return static_cast<int>(slot);
  if (const int code = pages_.prepare(range.begin, end); code != 0) return code;
  for (auto page = range.begin; page < end; page += kPage)
    *pages_.find(page) = {.slot = static_cast<std::uint32_t>(slot), .weight = 1};
  move_out(range.begin, end);
  return 0;
}

int FaultSource::disarm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard hold(lock_);
  return answered([&] {
    collect();
    for (const ArmRange& range : ranges) {
      if (!aligned(range)) return -EINVAL;
      pages_.forget(range.begin, range.begin + range.bytes);
    }
    return 0;
  });
}

int FaultSource::drain(std::vector<PageCount>& out) noexcept {
  const std::lock_guard hold(lock_);
  return answered([&] {
    collect();
    out.reserve(out.size() + counters_.touched());
    counters_.take(out);
    arm_again();
    return 0;
  });
}

// A page faults more than once where several of the device's processors want it.
void FaultSource::collect() {
  taken_.clear();
  lost_ += static_cast<double>(faults_->take(taken_));
  seen_ += static_cast<double>(taken_.size());
  info_.missed = lost_ == 0 ? 0 : lost_ / (seen_ + lost_);
  for (const auto& fault : taken_) {
    if (fault.address < begin_ || fault.address >= end_) continue;
    const auto block = fault.address / kBlock * kBlock;
    if (opened_in_.empty() || opened_in_.back() != block) opened_in_.push_back(block);
    auto* const page = pages_.find(fault.address);
    if (page == nullptr || !page->tracked() || page->opening == serial_) continue;
    page->opening = serial_;
    counters_.count(page->slot, 1, false, fault.write);
  }
}

void FaultSource::move_out(std::uintptr_t begin, std::uintptr_t end) {
  begin = std::max(begin, begin_);
  end = std::min(end, end_);
  if (begin < end) driver_.prefetch(begin, end - begin, false, stream_);
}

// With what has come along.
void FaultSource::arm_again() {
  std::ranges::sort(opened_in_);
  const auto same = std::ranges::unique(opened_in_);
  opened_in_.erase(same.begin(), same.end());
  for (std::size_t i = 0; i < opened_in_.size();) {
    const auto first = opened_in_[i];
    auto end = first;
    for (; i < opened_in_.size() && opened_in_[i] == end; ++i) end += kBlock;
    move_out(first, end);
  }
  if (!opened_in_.empty()) wait();
  opened_in_.clear();
  ++serial_;
}

void FaultSource::wait() {
  driver_.record(moved_, stream_);
  driver_.synchronize(moved_);
}

}  // namespace sentinel::gpu
