// The cost model evaluated for one vector of choices, and again after one choice changes.
//
// The step is cut into blocks of kBlock ops. evaluate() keeps the state at the start of each block.
// A changed choice matters from its item's `use` on: trying it starts at that block, and ends early
// where, past the item's `next`, the state is the old one but for a shift in time. In between, a
// block that the change does not touch (no event of the item, no replay, room enough either way)
// and that is entered in the old state is passed over. All exact: times are integers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/search/cost_model.h"

namespace sentinel::plan {

class CostRun {
 public:
  static constexpr std::uint32_t kBlock = 16;  // ops

  explicit CostRun(const CostModel&);

  Cost evaluate(std::span<const Remedy> choices);  // in full; they become the present ones
  Cost trial(std::uint32_t item, Remedy);          // what it would cost; nothing changes
  void apply(std::uint32_t item, Remedy);          // makes it the present choice
  const Cost& cost() const { return cost_; }       // of the present choices
  const std::vector<Remedy>& choices() const { return choices_; }
  const std::vector<std::uint8_t>& tiers() const { return committed_.tier; }  // of swapped items
  std::int64_t replay_ticks() const { return replay_ticks_; }
  const std::vector<std::int64_t>& held() const { return held_; }  // per op, writes apart
  std::uint64_t ops_evaluated() const { return ops_evaluated_; }

 private:
  using PerTier = std::array<std::uint32_t, kMostTiers>;
  using Queues = std::array<std::vector<std::uint32_t>, kMostTiers>;  // items in order of issue

  struct State {
    std::int64_t now = 0;
    std::array<std::int64_t, kMostTiers> in_free{}, out_free{};      // when the queue is empty
    std::array<std::int64_t, kMostTiers> stored{};                   // bytes in the slower tiers
    PerTier write_head{}, write_tail{}, fetch_head{}, fetch_tail{};  // unfinished: [head, tail)
    std::int64_t pending = 0;                                        // bytes of unfinished writes
    std::uint64_t excess = 0;
    std::int64_t replay = 0;
  };
  struct OpBlock {  // at its start, and what happened within it
    State start;
    std::int64_t room = INT64_MAX;  // least limit minus (held and pending); below 0: waited
    std::array<std::int64_t, kMostTiers> store_room{};  // least room that a write found
    bool replays = false;
  };
  struct History {  // what became of each event
    Queues writes, fetches;
    std::vector<std::int64_t> written, arrived;  // per item: when
    std::vector<std::uint8_t> tier;              // per item
  };
  struct Replayed {
    std::int64_t ticks = 0;
    std::int64_t held = 0;
  };
  // How a trial's state differs from the present one where they are otherwise the same.
  struct Offset {
    std::int64_t ticks = 0;
    std::uint64_t excess = 0;  // modulo 2^64
    std::array<std::int64_t, kMostTiers> stored{};
  };

  void run_block(std::uint32_t block, State&, OpBlock&);
  void step(std::uint32_t op, State&, OpBlock&);
  void retire(State&);
  std::int64_t start_fetches(std::uint32_t op, State&);
  Replayed meet_needs(std::uint32_t op, State&);
  bool replay(std::uint32_t node, std::uint32_t op, State&, Replayed&);
  bool present(std::uint32_t item, std::uint32_t op) const;
  void wait_for_room(std::int64_t needed, State&) const;
  void start_writes(std::uint32_t op, State&, OpBlock&);
  void hold(std::uint32_t item, Remedy, std::int64_t sign);
  std::int64_t limit() const { return static_cast<std::int64_t>(model_.limit()); }
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(blocks_.size()); }

  // Reads of a trial: what lies before its first evaluated op is of the present history, shifted.
  bool mine(std::uint32_t item, std::uint32_t position) const {
    return !trying_ || item == tried_ || position >= from_;
  }
  std::int64_t written(std::uint32_t item) const;
  std::int64_t arrived(std::uint32_t item) const;
  std::uint32_t tier(std::uint32_t item) const;
  std::uint32_t write_at(std::size_t tier, std::uint32_t at) const;
  std::uint32_t fetch_at(std::size_t tier, std::uint32_t at) const;

  Cost run_trial(std::uint32_t item);
  State enter(std::uint32_t block, const Offset&);
  bool same(const State& tried, const State& old) const;
  bool untouched(std::uint32_t block, const Offset&) const;

  const CostModel& model_;
  std::vector<Remedy> choices_;
  std::vector<std::int64_t> held_;
  std::uint64_t moved_ = 0;
  std::vector<OpBlock> blocks_;
  Cost cost_;
  std::int64_t replay_ticks_ = 0;
  History committed_, trial_;
  std::vector<std::uint32_t> remade_;  // ops replayed before the present op

  // Of the trial that is running:
  bool trying_ = false;
  std::uint32_t tried_ = 0;                 // the changed item
  std::uint32_t from_ = 0;                  // first op evaluated in this stretch
  std::int64_t shift_ = 0;                  // of the present history's times, in this stretch
  PerTier writes_from_{}, fetches_from_{};  // first event of this stretch
  std::int64_t held_change_ = 0;            // between the item's `use` and `in`
  bool moves_ = false;                      // it is swapped before or after the change
  bool tiers_differ_ = false;               // another item went to another tier
  std::uint64_t ops_evaluated_ = 0;
};

}  // namespace sentinel::plan
