// Feature maps: what forward leaves for backward. The gaps that HOME and SuperNeurons decide about.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/gaps/decisions.h"
#include "plan/step/storage.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// One gap an intermediate storage, from its last use in the forward phase to its first use after
// it. Where the profile names no backward phase, each intermediate's longest gap. Ascending by
// storage; gaps with no op in between, and storages older than the step, are left out.
std::vector<IdleGap> feature_maps(const Profile&, const std::vector<Storage>&);

// What the ops hold beyond the limit at the worst of them.
struct Shortage {
  std::uint32_t op = 0;
  std::uint64_t bytes = 0;
};
Shortage worst_shortage(const std::vector<std::int64_t>& held, std::uint64_t limit);

// Throws Error: the method cannot fit the budget.
[[noreturn]] void refuse(std::string_view method, const Profile&, const Shortage&,
                         std::uint64_t budget);

}  // namespace sentinel::plan
