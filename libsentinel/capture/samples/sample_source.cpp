// Arms events for all threads, drains their rings, and counts samples by the tag of their page.
#include "capture/samples/sample_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = PageIndex::kPage;
constexpr std::chrono::duration<double> kTick{0.01};  // of the slowest clock, CONFIG_HZ=100

}  // namespace

SampleSource::SampleSource(std::vector<SampleRing> rings, std::uint32_t period)
    : period_(period),
      process_(getpid()),
      begin_(std::chrono::steady_clock::now()),
      info_{.name = "samples",
            .exact = false,
            .window = false,
            .whole = true,
            .reads_writes_apart = true,
            .page_bytes = kPage},
      rings_(std::move(rings)) {}

SampleSource::SampleSource(const SampleEvents& events)
    : SampleSource(std::vector<SampleRing>(), events.period) {
  if (events.events.empty())
    throw Error(fmt::format("hardware samples: {} ({})", events.reason, events.remedy));
  threads_ = std::make_unique<SampleThreads>(events);
}

int SampleSource::arm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard hold(lock_);
  collect();
  int first = 0;
  for (const ArmRange& range : ranges) {
    const int rc = aligned(range) ? track(range) : -EINVAL;
    if (first == 0) first = rc;
  }
  return first;
}

int SampleSource::track(const ArmRange& range) noexcept {
  const std::uintptr_t end = range.begin + range.bytes;
  const std::int64_t slot = counters_.slot_of(range.tag);
  if (slot < 0) return static_cast<int>(slot);
  if (const int rc = pages_.prepare(range.begin, end); rc != 0) return rc;
  for (std::uintptr_t page = range.begin; page < end; page += kPage)
    *pages_.find(page) = {.slot = static_cast<std::uint32_t>(slot), .weight = 1};
  return 0;
}

int SampleSource::disarm(std::span<const ArmRange> ranges) noexcept {
  const std::lock_guard hold(lock_);
  collect();
  for (const ArmRange& range : ranges) {
    if (!aligned(range)) return -EINVAL;
    pages_.forget(range.begin, range.begin + range.bytes);
  }
  return 0;
}

int SampleSource::drain(std::vector<PageCount>& out) noexcept try {
  const std::lock_guard hold(lock_);
  if (threads_) threads_->follow();
  collect();
  if (threads_) threads_->drop_ended();
  const std::size_t first = out.size();
  out.reserve(first + counters_.touched());
  counters_.take(out);
  for (PageCount& count : std::span(out).subspan(first))
    count.variance = static_cast<double>(count.reads + count.writes) * period_;
  info_.missed = missed();
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;  // what has been counted stays for the next time
}

void SampleSource::collect() noexcept {
  for (const SampleRing& ring : rings_) read(ring);
  if (!threads_) return;
  for (const EventRing& ring : threads_->rings()) read(ring.samples());
}

void SampleSource::read(const SampleRing& ring) noexcept {
  ring.take([this](const SampleRecord& record) {
    using Kind = SampleRecord::Kind;
    if (record.kind == Kind::sample) count(record.sample);
    throttled_ += record.kind == Kind::throttled;
    lost_ += static_cast<double>(record.lost);
  });
}

void SampleSource::count(const Sample& sample) noexcept {
  ++seen_;
  const SampledAccess access = access_of(sample.data_src);
  if (access == SampledAccess::none || sample.pid != static_cast<std::uint32_t>(process_)) return;
  const PageRecord* const page = pages_.find(sample.address);
  if (page && page->tracked())
    counters_.count(page->slot, period_, false, access == SampledAccess::write);
}

double SampleSource::missed() const noexcept {
  const std::chrono::duration<double> run = std::chrono::steady_clock::now() - begin_;
  const auto rings = static_cast<double>(threads_ ? threads_->rings().size() : rings_.size());
  const double lost = lost_ == 0 ? 0 : lost_ / (seen_ + lost_);
  const double rested = throttled_ == 0 ? 0 : throttled_ * kTick / (run * rings);
  return std::min(1.0, lost + rested + (threads_ ? threads_->unseen() : 0));
}

}  // namespace sentinel
