// SPDX-License-Identifier: Apache-2.0
// The access-source seam: where page access counts come from.
//
// Called by the recorder: arm() and disarm() from the training thread between and within ops,
// drain() after every op. Implementations are thread-safe against the faults they take, and
// noexcept: errors are negative errno values.
//
// A count is an *opening*: an armed page faults when touched, the fault opens and counts it and
// puts it in the faulting thread's window, a FIFO of W opened pages; it is armed again when W
// other pages were opened by that thread after it, or when its range is disarmed. A source that is
// not exact counts something near it: accesses, as many as its samples stand for, or the openings
// of a device, as far as whoever serves its faults lets them be seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sentinel {

struct SourceInfo {
  std::string name;
  bool exact = true;   // counts openings, each of them
  bool window = true;  // it is the window that arms pages again
  bool whole = false;  // it counts all pages of a range, whatever its stride
  bool reads_writes_apart = false;
  std::uint32_t page_bytes = 4096;
  double event_cost_us = 0;  // rough cost of one opening, for choosing a sampling stride
  double missed = 0;  // share of all that may not have been counted, besides the sampling error
};

// Bytes [begin, begin + bytes), page aligned. One page in `stride` is tracked, stratified: one at a
// seeded-random place in each run of `stride` pages; each opening then counts `stride`.
struct ArmRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::uint32_t stride = 1;
  std::uint32_t tag = 0;  // the owner's (a tensor's id); comes back in PageCount
};

// What a source may be asked to arm; it answers -EINVAL to anything else.
inline bool aligned(const ArmRange& range) {
  constexpr std::size_t page = 4096;
  return range.begin % page == 0 && range.bytes % page == 0 && range.stride > 0;
}

struct PageCount {
  std::uint32_t tag = 0;
  std::uint64_t reads = 0, writes = 0;  // openings since the last drain, scaled by stride
  // Of both, those in a range's even runs of `stride` pages. How much the two halves differ tells
  // the sampling error.
  std::uint64_t even = 0;
  double variance = 0;  // of reads + writes, where accesses are sampled
};

class AccessSource {
 public:
  virtual ~AccessSource() = default;
  virtual const SourceInfo& info() const = 0;
  virtual int arm(std::span<const ArmRange> ranges) noexcept = 0;
  virtual int disarm(std::span<const ArmRange> ranges) noexcept = 0;
  // Appends one PageCount per tag opened since the last drain; openings are never lost.
  virtual int drain(std::vector<PageCount>& out) noexcept = 0;
  // What the call that failed last failed of, where a number does not say it; else empty.
  virtual std::string failure() const { return ""; }
};

}  // namespace sentinel
