// The question that the lower bound answers, and its answer.
#pragma once

#include <cstdint>
#include <vector>

namespace sentinel::plan {

struct BoundOptions {
  std::uint64_t fast_bytes = 0;  // the budget
  // Capacity is enforced at so many ops at most. 0: from 100 on as many as the time limit allows;
  // more of them never lower the bound.
  std::uint32_t buckets = 0;
  bool recompute = false;  // plans may replay ops
  // For planners: of all solutions one that prefers faster tiers, whose moves a plan can time best.
  // Its step_us says nothing.
  bool faster_tiers_first = false;
  double time_limit_s = 5;  // only cuts: what holds by then is the answer
};

// What the program does with one idle gap of a storage, as shares of its bytes. Gaps of which
// nothing leaves are not listed.
struct GapShare {
  std::uint32_t storage = 0;        // index into storages()
  std::uint32_t use = 0, next = 0;  // positions; next >= ops: a use in the following step
  std::vector<double> evicted;      // to each slower tier: [0] is tier 1
  double recomputed = 0;            // given up and made again
  friend bool operator==(const GapShare&, const GapShare&) = default;
};

struct Bound {
  double step_us = 0;          // no plan's steady step is shorter; at least the sum of op times
  std::uint32_t buckets = 0;   // of the program that gave it; 0: nothing has to move
  bool exact = true;           // that program was solved, not cut by the time limit
  std::vector<GapShare> gaps;  // by (storage, use); empty where the program was not solved
};

}  // namespace sentinel::plan
