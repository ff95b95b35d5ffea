// Records one step: ops, layers, tensors, which op names and opens which tensor. The result is a
// Profile, its ops in the order in which they began; several may run at once. Not thread-safe; the
// session locks. Everything it holds is ordinary memory, never guarded.
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

std::uint64_t name_hash(std::string_view name);

// Whether the ops of a step run one after the other, or at the same time, in an order of each
// step's own.
enum class OpOrder { sequence, any };

// A step's signature is made of its events: each op by its name, each allocation by its op's name
// and its size; chained, or, where the order is any, summed.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}
constexpr std::uint64_t extended(std::uint64_t signature, std::uint64_t event, OpOrder order) {
  return order == OpOrder::any ? signature + event : mix(signature, event);
}
constexpr std::uint64_t op_event(std::uint64_t name) { return mix(name, 1); }
constexpr std::uint64_t allocation_event(std::uint64_t op_name, std::uint64_t bytes) {
  return mix(mix(op_name, 2), bytes);
}

class StepRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  using Record = std::uint32_t;  // index of a tensor in this step
  using Op = std::uint32_t;      // index of an op in this step
  static constexpr Record kNone = ~0u;

  // The step opens with an op of its own, kPrelude: what happens before the framework's first op.
  static constexpr const char* kPrelude = "(step begins)";
  static constexpr Op kPreludeOp = 0;
  void begin(OpOrder = OpOrder::sequence);
  // A tensor that exists when the step begins. `offset`: in the arena.
  Record present(std::uint64_t bytes, std::uint64_t offset);
  Record allocated(Op, std::uint64_t bytes, std::uint64_t offset);
  void freed(Record);  // during the op that began last
  // Memory that is not ours, by its address.
  Record foreign(std::uintptr_t address, std::uint64_t bytes);

  void layer(std::string_view name, Phase);
  // Where ops of several layers run in turns: one that has begun in this step does not begin again.
  void layer_once(std::string_view name, Phase);
  void one_layer(std::string_view name);  // all ops so far are of this one
  // `waited_us`: for how long threads have waited for memory so far; no op's time has that in it.
  Op op_start(const char* name, Phase, double waited_us = 0);
  void op_uses(Op, Record, bool reads, bool writes);
  void op_run(Op, double waited_us = 0);  // its inputs are there: computing begins
  void op_end(Op, double waited_us = 0);
  // Its tag: a Record. By the op that names this tensor, if it has not ended, else by `Op`.
  void opened(Op, const PageCount&);
  void forget_openings();
  void sampled(Record record, std::uint32_t stride) { tensors_[record].sample_stride = stride; }

  std::uint64_t signature() const { return signature_; }  // of ops and allocations
  double microseconds() const;
  // Of all openings counted so far, as their sum's standard error by its parts' two halves
  // (sampling.h), relative.
  double sample_error() const;
  Op latest_op() const { return static_cast<Op>(ops_.size() - 1); }
  std::uint64_t live_bytes() const { return live_bytes_; }  // page-rounded, now
  std::uint64_t peak_bytes() const { return peak_bytes_; }

  // Op times of a normal step, to be put in the place of those distorted by counting: of each name,
  // in the order in which those ops began.
  using Times = std::unordered_map<std::uint64_t, std::vector<double>>;
  Times op_microseconds() const;
  // What is known so far. `times`, if of the same ops, replaces the measured ones.
  Profile profile(const ProfileMeta&, const Times& times) const;

 private:
  struct OpRecord {
    const char* name;
    std::uint64_t hash;  // of the name
    std::uint32_t layer;
    Phase phase;
    Clock::time_point start, end;
    double waited_us = 0, end_waited_us = 0;  // at the start, at the end
    std::uint32_t allocations = 0;
    bool running = true;
  };
  struct UseRecord {
    Op op;
    Record tensor;
    bool reads, writes;
  };

  Record add(Tensor tensor, Op named_by = kPreludeOp);
  std::vector<double> measured() const;
  void grow_live(std::uint64_t bytes);
  std::vector<TensorId> add_tensors(Profile&) const;  // per record
  void natural_placement(Profile&, const std::vector<TensorId>&) const;
  void name_tensors(Profile&) const;
  void layers_from_ops(Profile&) const;
  void kinds(Profile&) const;

  std::vector<OpRecord> ops_;
  std::vector<Layer> layers_;
  std::vector<Tensor> tensors_;
  std::vector<Op> named_by_;  // per tensor: the last op that named or made it
  std::vector<UseRecord> uses_;
  std::vector<AccessCount> accesses_;
  std::vector<std::pair<Record, bool>> events_;  // allocated (true) and freed, in order
  std::unordered_map<std::uintptr_t, Record> foreign_;
  OpOrder order_ = OpOrder::sequence;
  std::uint64_t signature_ = 0, live_bytes_ = 0, peak_bytes_ = 0;
  double counted_ = 0, variance_ = 0;  // openings; of their sum
  bool explicit_layers_ = false;
  Clock::time_point begin_;
};

}  // namespace sentinel
