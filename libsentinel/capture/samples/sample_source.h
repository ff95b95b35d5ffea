// The access source that asks the processor: it picks one access in a great many, and says which
// address it went to (docs/design/counting.md). Memory is not touched, shared or slowed down
// by faults.
//
// A count is not an opening. It is the number of sampled loads or stores by the program, times the
// sampling period: how often memory was used, however often it was found in a cache. Counts of
// tensors compare with each other, not with those of a source that counts openings. What the kernel
// does on the program's behalf (read(2)) is not counted on Intel.
//
// Error: n samples are n +- sqrt(n), which PageCount::variance carries. Samples that the kernel
// lost are not made up, for it is told too late which op they belong to; by their share,
// SourceInfo::missed grows, and by what a throttled event can have missed: it rests until the
// next tick of the clock.
//
// Ranges' strides are not needed and not used: every page is armed.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "capture/page_index.h"
#include "capture/samples/sample_buffer.h"
#include "capture/samples/sample_threads.h"
#include "capture/tag_counters.h"
#include "sentinel/access_source.h"

namespace sentinel {

class SampleSource final : public AccessSource {
 public:
  // Samples every thread of this process. Throws Error, with what to do, where it cannot.
  explicit SampleSource(const SampleEvents&);
  // Reads rings that somebody else fills, with samples of this process.
  SampleSource(std::vector<SampleRing> rings, std::uint32_t period);

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;

 private:
  int track(const ArmRange&) noexcept;
  void collect() noexcept;  // samples so far, to what is armed now
  void read(const SampleRing&) noexcept;
  void count(const Sample&) noexcept;
  double missed() const noexcept;

  const std::uint32_t period_;
  const pid_t process_;
  const std::chrono::steady_clock::time_point begin_;
  SourceInfo info_;

  std::mutex lock_;  // guards all below, and info_.missed
  PageIndex pages_;
  TagCounters counters_;
  std::unique_ptr<SampleThreads> threads_;  // or
  std::vector<SampleRing> rings_;
  double seen_ = 0, lost_ = 0, throttled_ = 0;
};

}  // namespace sentinel
