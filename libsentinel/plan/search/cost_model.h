// Step time of a vector of decisions about idle gaps, in time linear in the ops: compute, one queue
// each way for every slower tier, and fast memory. The searching policies try thousands of vectors
// a second with it; the simulator says how good the model is (docs/results/search.md).
//
// Terms. An *item* is one idle gap that may be kept, swapped or recomputed. A *choice* is the
// remedy of one item. A swapped item is absent from the op after `use` until `in`, where its fetch
// is triggered; a recomputed one until `next`, before which its replay chain runs. What a chain
// reads is there, fetched, or itself made again; a chain that reads what is fetched only later does
// not count as legal.
//
// What is modelled: an op waits for the fetches it needs, for its replays, and for unfinished
// writes where their space is needed; a fetch waits for the one before it, for the item's own
// write, and for room. Left out: links that tiers share, and the tail that one step leaves to the
// next. Time is counted in integer ticks, so that equal histories have equal times and evaluating
// again after a change (plan/search/cost_run.h) gives the very result of evaluating in full.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/gaps/decisions.h"
#include "plan/schedule/basis.h"
#include "plan/step/replay.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

constexpr double kTicksPerUs = 1024;
constexpr std::size_t kMostTiers = 6;     // of a machine, the fast one included
constexpr std::size_t kMostReplays = 32;  // of one chain

struct Cost {
  std::uint64_t excess = 0;  // bytes beyond the limit, summed over ops; 0: the choices fit
  std::int64_t ticks = 0;
  std::uint64_t moved = 0;  // bytes of swapped items, one way
  // What fits better is less, then what is faster, then what moves less.
  friend auto operator<=>(const Cost&, const Cost&) = default;
  double us() const { return static_cast<double>(ticks) / kTicksPerUs; }
};

struct CostInput {
  const Profile& profile;
  const Machine& machine;
  const std::vector<Storage>& storages;
  std::vector<IdleGap> gaps;  // the items; of one storage, disjoint
  std::uint64_t limit = 0;    // bytes of fast memory
  // A fetch is triggered at most so many times its own transfer time before its use,
  double lead = 2;
  // and as early as this share of what ops leave free, were all items swapped, has room for it.
  double window = 1;
  bool recompute = true;  // replay chains are looked for
  // Where tensors share granules: what they hold together. The items' storages are movable.
  const Basis* basis = nullptr;
};

class CostModel {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Item {
    std::uint32_t use = 0, in = 0, next = 0;  // positions
    std::uint32_t chain = kNone;              // node that makes it again before `next`
    std::uint64_t bytes = 0, held = 0;        // moved; in granules
    bool dirty = true;
    std::array<std::int64_t, kMostTiers> out_ticks{}, in_ticks{};
  };
  // One replayed op before one op, and what it reads that may not be there.
  struct Node {
    std::uint32_t op = 0;
    std::int64_t ticks = 0;
    std::uint64_t held = 0;  // its outputs
    std::uint32_t edges = 0, edges_end = 0;
  };
  struct Edge {
    std::uint32_t item = kNone;  // absent only by this item's choice; kNone: dead by then
    std::uint32_t node = kNone;  // makes it again; kNone: nothing legal does
  };

  explicit CostModel(const CostInput&);

  std::size_t size() const { return items_.size(); }
  std::uint32_t ops() const { return static_cast<std::uint32_t>(ticks_.size()); }
  std::size_t tiers() const { return capacity_.size(); }
  std::uint64_t limit() const { return limit_; }
  std::uint64_t capacity(std::size_t tier) const { return capacity_[tier]; }
  const Item& item(std::uint32_t i) const { return items_[i]; }
  const Node& node(std::uint32_t n) const { return nodes_[n]; }
  std::span<const Edge> edges(const Node& n) const {
    return std::span(edges_).subspan(n.edges, n.edges_end - n.edges);
  }
  std::int64_t ticks(std::uint32_t op) const { return ticks_[op]; }
  // Per op, all items kept: what is held.
  const std::vector<std::int64_t>& held() const { return held_; }
  std::span<const std::uint32_t> used_at(std::uint32_t op) const { return out_.at(op); }
  std::span<const std::uint32_t> fetched_at(std::uint32_t op) const { return in_.at(op); }
  std::span<const std::uint32_t> needed_at(std::uint32_t op) const { return next_.at(op); }

  bool recomputable(std::uint32_t item) const { return items_[item].chain != kNone; }
  // Items whose choices decide what the item's replays find there.
  std::vector<std::uint32_t> read_by_replay(std::uint32_t item) const;
  // With everything else kept: what the item's replays take.
  std::int64_t replay_ticks(std::uint32_t item) const;

  // As decisions for decided_plan(); `tier` is per item.
  std::vector<Decision> decisions(std::span<const Remedy> choices,
                                  std::span<const std::uint8_t> tier) const;
  // The sum of op times.
  std::int64_t ideal_ticks() const { return ideal_; }

 private:
  struct Lists {  // items by op
    std::vector<std::uint32_t> begin, items;
    std::span<const std::uint32_t> at(std::uint32_t op) const {
      return std::span(items).subspan(begin[op], begin[op + 1] - begin[op]);
    }
  };
  class Chains;

  void make_items(const CostInput&);
  void hold_base(const CostInput&);
  void find_needs(const CostInput&);
  void place_fetches(const CostInput&);
  std::int64_t starts_at(std::uint32_t position) const {
    return starts_[position % ops()] + (position >= ops() ? ideal_ : 0);
  }
  std::uint32_t latest_start(const Item&, std::uint32_t need, double lead) const;
  std::vector<std::uint32_t> chain_nodes(const Item&) const;
  template <class Position>
  Lists lists(Position) const;

  std::uint64_t limit_;
  std::vector<std::uint64_t> capacity_;  // per tier
  std::vector<std::int64_t> ticks_;      // per op
  std::int64_t ideal_ = 0;
  std::vector<std::int64_t> starts_;  // per op, with no waits
  std::vector<std::uint32_t> needs_;  // per item: `next`, or a replay before it that reads it
  std::vector<std::int64_t> held_;    // per op
  std::vector<IdleGap> gaps_;
  std::vector<Item> items_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  Lists out_, in_, next_;
};

}  // namespace sentinel::plan
