// Records one step: ops, layers, tensors, which op names and opens which tensor. The result is a
// Profile. Not thread-safe; the session locks. Everything it holds is ordinary memory, never
// guarded.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sentinel/access_source.h"
#include "sentinel/profile.h"

namespace sentinel {

// The running hash of a step's events: op names (by name_hash) and allocated sizes.
constexpr std::uint64_t kStepHashSeed = 0xcbf29ce484222325ull;
constexpr std::uint64_t step_hash(std::uint64_t hash, std::uint64_t event) {
  hash = (hash ^ event) * 0x100000001b3ull;
  return hash ^ (hash >> 29);
}
std::uint64_t name_hash(std::string_view name);

class StepRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  using Record = std::uint32_t;  // index of a tensor in this step
  static constexpr Record kNone = ~0u;

  // The step opens with an op of its own, kPrelude: what happens before the framework's first op.
  static constexpr const char* kPrelude = "(step begins)";
  void begin();
  // A tensor that exists when the step begins. `offset`: in the arena.
  Record present(std::uint64_t bytes, std::uint64_t offset);
  Record allocated(std::uint64_t bytes, std::uint64_t offset);
  void freed(Record);
  // Memory that is not ours, by its address.
  Record foreign(std::uintptr_t address, std::uint64_t bytes);

  void layer(std::string_view name, Phase);
  void one_layer(std::string_view name);  // all ops so far are of this one
  void op_start(const char* name, Phase);
  void op_uses(Record, bool reads, bool writes);
  void op_run();  // its inputs are there: computing begins
  void op_end();
  void opened(const PageCount&);  // its tag: a Record
  void forget_openings();
  void sampled(Record record, std::uint32_t stride) { tensors_[record].sample_stride = stride; }

  // Of the sequence of ops and allocations; equal for equal steps. Mixed as step_hash() does.
  std::uint64_t signature() const { return signature_; }
  double microseconds() const;
  // Of all openings counted so far, as their sum's standard error by its parts' two halves
  // (sampling.h), relative.
  double sample_error() const;
  std::size_t ops() const { return ops_.size(); }
  std::uint64_t live_bytes() const { return live_bytes_; }  // page-rounded, now
  std::uint64_t peak_bytes() const { return peak_bytes_; }

  // Op times of a normal step, to be put in the place of those distorted by counting.
  std::vector<double> op_microseconds() const;
  // What is known so far. `times`, if as many as ops, replaces the measured ones.
  Profile profile(const ProfileMeta&, const std::vector<double>& times) const;

 private:
  struct OpRecord {
    const char* name;
    std::uint32_t layer;
    Phase phase;
    Clock::time_point start, end;
  };
  struct UseRecord {
    std::uint32_t op;
    Record tensor;
    bool reads, writes;
  };

  std::uint32_t current_op() const {
    return ops_.empty() ? 0 : static_cast<std::uint32_t>(ops_.size() - 1);
  }
  Record add(Tensor tensor);
  void grow_live(std::uint64_t bytes);
  void natural_placement(Profile&) const;
  void name_tensors(Profile&) const;
  void layers_from_ops(Profile&) const;
  void kinds(Profile&) const;

  std::vector<OpRecord> ops_;
  std::vector<Layer> layers_;
  std::vector<Tensor> tensors_;
  std::vector<UseRecord> uses_;
  std::vector<AccessCount> accesses_;
  std::vector<std::pair<Record, bool>> events_;  // allocated (true) and freed, in order
  std::unordered_map<std::uintptr_t, Record> foreign_;
  std::uint32_t ordinal_ = 0;  // allocations since the current op began
  std::uint64_t signature_ = 0, live_bytes_ = 0, peak_bytes_ = 0;
  double counted_ = 0, variance_ = 0;  // openings; of their sum
  bool explicit_layers_ = false;
  Clock::time_point begin_;
};

}  // namespace sentinel
