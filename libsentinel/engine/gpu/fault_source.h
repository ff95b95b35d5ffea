// The access source of a GPU's page faults in managed memory, as CUPTI tells them. Arming a range
// moves it to the host: the device faults when it touches a page, which opens it. What was opened
// is moved back when it is drained, after each op.
//
// Not exact, and not run on a device yet:
// - A page counts at most once between two drains; there is no window.
// - The driver serves faults in groups and brings neighbours of a page along, up to 2 MiB, unasked:
//   these do not fault, and are not counted. (Its module parameter uvm_perf_prefetch_enable=0 ends
//   that.)
// - A record that comes late goes to the next op's tensor at that address.
//
// Thread-safe but for info(), which other calls change: it is read while none of them runs.
// Conditions: the memory is managed and lies in [begin, begin + bytes); nothing is computed while
// it arms or drains.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/page_index.h"
#include "capture/tag_counters.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/gpu/page_faults.h"
#include "sentinel/access_source.h"

namespace sentinel::gpu {

class FaultSource final : public AccessSource {
 public:
  // The driver outlives the source. Throws Error.
  FaultSource(Driver&, std::unique_ptr<PageFaults>, std::uintptr_t begin, std::uint64_t bytes);
  ~FaultSource() override;
  FaultSource(const FaultSource&) = delete;
  FaultSource& operator=(const FaultSource&) = delete;

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;
  std::string failure() const override;  // the driver's call and what it said

 private:
  template <class F>
  int answered(F&&) noexcept;
  void failed(const char* what) noexcept;
  int track(const ArmRange&);
  void collect();
  void move_out(std::uintptr_t begin, std::uintptr_t end);
  void arm_again();
  void wait();
  void end() noexcept;

  Driver& driver_;
  const std::uintptr_t begin_, end_;
  Stream stream_ = nullptr;
  Event moved_ = nullptr;

  mutable std::mutex lock_;  // guards all below
  SourceInfo info_;
  std::unique_ptr<PageFaults> faults_;
  PageIndex pages_;
  TagCounters counters_;
  std::uint64_t serial_ = 1;  // of the openings since the last drain
  double seen_ = 0, lost_ = 0;
  std::string failure_;
  std::vector<PageFault> taken_;           // of one call, reused
  std::vector<std::uintptr_t> opened_in_;  // blocks
};

}  // namespace sentinel::gpu
