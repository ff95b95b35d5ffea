// How decisions about gaps become moves and replays, one step after the other: the level that they
// leave, which replays are legal and have room (gap_replays.cpp), how early promotions begin
// (gap_fetches.cpp). Private to decided_plan().
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plan/gaps/decisions.h"
#include "plan/step/footprint.h"
#include "plan/step/level.h"

namespace sentinel::plan {

class GapPlanner {
 public:
  GapPlanner(std::string_view policy, const Basis& basis, const PlanOptions& options)
      : policy_(policy),
        basis_(basis),
        profile_(basis.profile),
        machine_(basis.machine),
        options_(options),
        ops_(static_cast<std::uint32_t>(basis.profile.ops.size())),
        frames_(shares_granules(basis.machine.granule_bytes)),
        storages_(basis.storages),
        footprint_(basis.footprint),
        demand_(basis.demand),
        replay_(basis.replay),
        by_tensor_(basis.storage_of),
        level_(basis.demand.all) {}

  DecidedPlan plan(const std::vector<Decision>& decisions, const Pace* pace);

 private:
  struct Eviction {
    Decision decision;
    std::uint64_t bytes = 0;        // that leaving frees
    std::uint64_t whole = 0;        // of its memory, what a discard frees (plan/step/footprint.h)
    std::uint32_t out = 0, in = 0;  // absent at [out, in)
    bool needed = true;             // its next use reads it
    bool recomputed = false;
    std::uint32_t written = 0;  // by the pace: the first position at which its space is free
    std::uint32_t lies = 1;     // by the pace: the tier of its copy
    std::uint32_t back_by = 0;  // a replay reads it before its next use does
  };

  std::int64_t limit() const { return static_cast<std::int64_t>(options_.fast_bytes); }
  bool late() const { return seconds_since(begin_) > options_.time_limit_s; }
  void refuse_large_ops() const;
  void adopt(const std::vector<Decision>&);
  void choose_replays();
  bool replayed(Eviction&);
  bool may_be_lost(const Eviction&) const;
  bool take_replays(OpId before, std::vector<Recompute> group, const std::set<OpId>& added);
  Eviction* worth_keeping(const Recompute&, TensorId);
  std::uint32_t position_in(const Eviction&, std::uint32_t op) const;
  void bring_back(Eviction&, std::uint32_t position);
  void swap_instead(Eviction&);
  static std::int64_t signed_bytes(const Eviction& e) {
    return static_cast<std::int64_t>(e.recomputed ? e.whole : e.bytes);
  }
  Eviction* covering(TensorId, std::uint32_t op);
  void free_at_once();
  void require_fit() const;
  void fetch_early(const Pace*);
  Level slowed(const Pace&);
  const Eviction* evicted_before(const Eviction&) const;
  bool dirty(const Eviction&) const;
  std::uint32_t lead(const Eviction&) const;
  void emit(Plan&) const;
  std::string op_name(std::uint32_t k) const {
    return fmt::format("op {} ({})", k % ops_, profile_.ops[k % ops_].name);
  }

  std::string_view policy_;
  const Basis& basis_;
  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::uint32_t ops_;
  bool frames_;  // a training run's, with its rules for replays (plan/step/replay.cpp)
  const std::vector<Storage>& storages_;
  const Footprint& footprint_;
  const Demand& demand_;
  const Replay& replay_;
  const std::vector<std::uint32_t>& by_tensor_;
  Level level_;
  std::vector<Eviction> evictions_;                 // by storage and use
  std::vector<std::uint32_t> first_eviction_;       // per storage, and their number
  std::map<OpId, std::vector<Recompute>> replays_;  // by the op they precede
  double recompute_us_ = 0;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace sentinel::plan
