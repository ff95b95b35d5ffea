// Counting page accesses in a profiling step: opens the source that the options name, arms tensors,
// and hands each op's openings to the recorder. It decides neither when a step is counted nor what
// becomes of the counts (step_profile.h).
//
//   idle -- begin() --> active -- end() --> idle, with counts
//
// Where counting is refused it stays idle, and refusal() says why: ops' inputs and outputs are then
// taken for accesses. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/address_table.h"
#include "capture/recorder.h"
#include "engine/engine.h"
#include "engine/gpu/cuda_driver.h"
#include "options/options.h"
#include "runtime/limit/voice.h"
#include "sentinel/access_source.h"
#include "sentinel/profile.h"

namespace sentinel {

// Whether the engine is to be made so that pages of its arena can be barred, where the kernel has
// that: a step may have to be counted, and `rwp` would count it.
bool may_bar(const SessionOptions&);

class Counting {
 public:
  // All outlive it; no driver: the tensors are no GPU's.
  Counting(const SessionOptions&, Engine&, gpu::Driver*, StepRecorder&, const Voice&);

  bool active() const { return active_; }
  bool possible() const { return refusal_.empty(); }
  void refuse(std::string why) { refusal_ = std::move(why); }

  // Whether a later step is counted by page faults on memory that has to be shared for it. If so,
  // share_memory() before the first tensors: no step copies them then.
  bool needs_shared_memory() const;
  void share_memory();  // throws Error

  // Right after a step began: arms every tensor of the table. Throws Error where the source that
  // was asked for by name is refused.
  void begin(AddressTable&);
  void end();  // and leaves the memory that can be counted
  // What was counted does not serve: a fork cut the step short.
  void discard();
  void profiled() { has_counts_ = false; }

  // Tensors that begin and end meanwhile.
  void arm(const LiveTensor&);
  void disarm(const LiveTensor&);
  // After every op, so that each count is the op's that caused it.
  void drain(StepRecorder::Op);

  // The fields of a profile that tell how it was counted.
  void describe(ProfileMeta&) const;

 private:
  // Requests to the source: how many it refused, and its words about the first of these.
  struct Refused {
    std::uint64_t asked = 0, refused = 0;
    std::string reason;
    double share() const {
      return refused == 0 ? 0 : static_cast<double>(refused) / static_cast<double>(asked);
    }
  };

  bool counts_in_kernel() const;
  bool counts_by_bars() const;
  std::unique_ptr<AccessSource> make_source();
  std::unique_ptr<AccessSource> make_kernel_source();
  std::unique_ptr<AccessSource> make_rwp_source();
  bool whole() const;
  void arm_all(AddressTable&);
  void failed(Refused&, int code);
  void not_counted(Refused&, std::string_view reason);
  std::string uncounted() const;  // empty: all were counted

  const SessionOptions& options_;
  Engine& engine_;
  gpu::Driver* driver_;
  StepRecorder& recorder_;
  const Voice& voice_;
  std::unique_ptr<AccessSource> source_;
  SourceInfo last_info_;  // of the last source, as it ended
  std::string refusal_;   // empty: pages can be counted, as far as is known
  bool active_ = false;
  bool has_counts_ = false;  // the step being recorded has page counts
  Refused arms_, drains_;    // in this profiling step
  std::vector<PageCount> drained_;
};

}  // namespace sentinel
