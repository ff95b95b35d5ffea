// SPDX-License-Identifier: Apache-2.0
// A plan: where each tensor lies and when it moves. Made by plan/ (pure), checked by verify(),
// explained by explain(), walked by the live engine and by the simulator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sentinel/ids.h"

namespace sentinel {

enum class Pool : std::uint8_t {
  short_lived,  // the reserved space: always in fast memory, reused, never migrated
  long_lived,   // groups of equal lifetime
  persistent,   // fixed addresses given before the plan was made
  resident,     // long-lived tensors too small to be worth moving: never migrated, space reused
  mixed         // long-lived tensors of any lifetime, in the order in which they are made
};

// Where one step-allocated tensor lies. `offset` counts from the start of the plan's region, a
// range of addresses (not of fast memory) that the engine reserves; two tensors whose lifetimes
// overlap never overlap in it. Persistent tensors keep their own address and have no entry.
struct Placement {
  TensorId tensor;
  GroupId group;
  std::uint64_t offset = 0;
};

struct Group {
  Pool pool = Pool::long_lived;
  std::uint64_t offset = 0, bytes = 0;  // granule aligned, in the plan's region
  LayerId first_layer, last_layer;
  std::string reason;
};

// discard: gives up the space and the contents without a copy; they are recomputed before the next
// use, or never used again. copy: stays, and is copied to the slower tier while no demotion waits
// for the way there, so that a later demotion has nothing to write; a hint, which may be ignored.
// release: a demotion for which nobody waits; it is written when somebody needs its space.
enum class Direction : std::uint8_t { promote, demote, discard, copy, release };

struct Move {
  TensorId tensor;
  Direction direction = Direction::promote;
  OpId trigger;  // promote: issued at this op's start; all others: issued at this op's end
  // promote: must have arrived when this op starts (an op before `trigger` is one of the next
  // step). demote: the last op during which its space may still be held; equal to `trigger` where
  // the next op already needs the space, so that the write is waited for. copy: the op at whose
  // end the tensor leaves.
  OpId deadline;
  std::uint32_t tier = 1;  // the slower tier involved (index into Machine::tiers)
  double delay_us = 0;     // issued so long after the trigger (0: at once)
  std::string reason;
};

// One op replayed right before op `before` starts. It needs its own inputs in fast memory and room
// for all of its outputs. What is in `keep` is in fast memory from then on as if it had never
// left; other outputs that exist elsewhere or are dead live until the last replay before the same
// op that reads them. Legal only as plan/step/replay.h says.
struct Recompute {
  OpId op, before;
  std::vector<TensorId> keep;  // sorted; outputs of `op` that were discarded
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

// The op uses the tensor in the byte-addressable slower tier where it lies, on purpose.
struct InPlace {
  TensorId tensor;
  OpId op;
  friend auto operator<=>(const InPlace&, const InPlace&) = default;
};

// The tensor is made in a byte-addressable slower tier, or, if persistent, lies there from the
// first step on. Its uses there are in Plan::in_place.
struct Birth {
  TensorId tensor;
  std::uint32_t tier = 1;
};

struct IntervalPoint {  // one point of the paper's Figure 5
  std::uint32_t layers = 0;
  double exposed_us = 0;
  double reserved_bytes = 0;  // RS(MIL)
  bool fits = false;          // Equation 1
};

struct Plan {
  std::uint32_t version = 3;
  std::string policy, machine, model;
  std::string profile_path;  // of that profile, absolute; `run --plan` reads its step from it
  std::uint64_t profile_signature = 0;  // ProfileMeta::signature of the profile it was made from
  std::uint64_t fast_bytes = 0;         // the budget it was made for
  std::uint64_t granule_bytes = 0;
  // Not 0: ids are those of the profile cut into parts of at most so many bytes
  // (plan/step/parts.h).
  std::uint64_t part_bytes = 0;
  std::uint64_t region_bytes = 0;     // addresses to reserve for placements
  std::uint64_t reserved_bytes = 0;   // short-lived pool, at its largest
  std::uint64_t peak_fast_bytes = 0;  // planned peak, granules, all pools
  std::uint32_t interval_layers = 0;  // 0 for policies without intervals
  std::vector<Placement> placements;  // sorted by tensor
  std::vector<Group> groups;
  std::vector<Move> moves;                // sorted by (trigger op, promote last, issue)
  std::vector<Recompute> recomputations;  // sorted by `before`, then in order of execution
  std::vector<OpId> streamed_ops;         // working set exceeds the budget
  std::vector<InPlace> in_place;          // sorted by tensor, op
  std::vector<Birth> births;              // sorted by tensor
  std::vector<IntervalPoint> curve;
  std::uint64_t frame_pool_bytes = 0;  // free frames kept for transfers, part of fast_bytes
  std::uint64_t smallest_budget = 0;   // that works at all
  std::uint64_t smallest_unstreamed_budget =
      0;  // largest working set of one op, and the frame pool
  std::uint64_t paper_bound =
      0;  // section IV-E: short-lived peak and the largest long-lived tensor
  std::uint64_t effort = 0;
  double predicted_step_us = 0;
  // Into fast memory and out of it in a step, with what passes through ops that do not fit: by the
  // judge of the planner that made it, else 0. A file does not have them.
  std::uint64_t predicted_in_bytes = 0, predicted_out_bytes = 0;
};

}  // namespace sentinel
