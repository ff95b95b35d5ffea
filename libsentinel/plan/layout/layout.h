// Where step-allocated tensors lie: the four rules of the Sentinel paper, section IV-B, with the
// granule (Machine::granule_bytes) as the page.
//
// 1. Short-lived tensors share the reserved pool; addresses are reused as lifetimes end.
// 2. Long-lived tensors of exactly the same first and last layer are one group, ordered by access
//    count. Those that fill whole granules well come first, each on a granule of its own, so that
//    one moves without the others; the rest is packed behind.
// 3. Different lifetimes never share a granule.
// 4. Long- and short-lived tensors never share a granule.
//
// Where the granule is a 2 MiB frame, following rules 2 and 3 to the letter would give nearly every
// batch-norm statistic a frame of its own. Two departures, both only for granules above 4 KiB:
// - Long-lived tensors below an eighth of a granule are not worth moving. They lie in a resident
//   area of their own (Pool::resident), never migrated, addresses reused. The threshold is halved
//   until that area is below a sixteenth of the budget.
// - Groups that leave more than an eighth of their granules empty are joined with groups of similar
//   lifetime: first and last layers differ by at most an eighth of the lifetime, or two layers.
//
// Addresses of long-lived groups are not reused: addresses are plentiful.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/storage.h"
#include "sentinel/plan.h"

namespace sentinel::plan {

struct Layout {
  std::vector<Placement> placements;  // sorted by tensor
  std::vector<Group> groups;
  std::uint64_t region_bytes = 0;
  std::uint64_t reserved_bytes = 0;  // height of the short-lived pool, granules
};

struct LayoutRules {
  bool pool = true;       // rule 1; without it short-lived tensors have granules of their own
  bool co_locate = true;  // rules 2 and 3; without them long-lived ones follow one another as they
                          // are made (Pool::mixed)
};

// Per storage: whether it may move, which the pools of short-lived and resident tensors never do.
std::vector<bool> find_movable(const Profile&, const std::vector<Storage>&, const Layout&);

Layout lay_out(const Profile&, const std::vector<Storage>&, std::uint64_t granule_bytes,
               std::uint64_t budget, LayoutRules = {});

// How far the lifetimes of tensors that share a group may differ, in layers at either end.
std::uint32_t lifetime_slack(LayerId first, LayerId last, std::uint64_t granule_bytes);

}  // namespace sentinel::plan
