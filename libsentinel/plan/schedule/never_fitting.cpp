// Chooses what never lies in fast memory, by accesses a byte, where an op needs more than the
// limit.
#include <algorithm>

#include "base/units.h"
#include "plan/schedule/schedule.h"

namespace sentinel::plan {
namespace {

// Calls visit(op) where the storage has to be in fast memory: at its uses, or as long as it lives
// if it is short-lived and never moves.
template <class Visit>
void for_each_op_of(const ScheduleInput& in, std::size_t i, Visit visit) {
  const auto ops = static_cast<std::uint32_t>(in.profile.ops.size());
  const Storage& s = in.storages[i];
  if (in.movable[i] || !s.short_lived())
    for (std::uint32_t use : s.uses) visit(use % ops);
  else
    for (std::uint32_t k = s.first; k <= s.last; ++k) visit(k);
}

}  // namespace

std::vector<bool> never_fitting(const ScheduleInput& in) {
  const auto& must = in.demand.must;
  std::vector<std::vector<std::uint32_t>> needed(must.size());  // at ops that exceed the limit
  for (std::uint32_t i = 0; i < in.storages.size(); ++i)
    for_each_op_of(in, i, [&](std::uint32_t k) {
      if (must[k] > in.limit) needed[k].push_back(i);
    });
  std::vector<bool> chosen(in.storages.size(), false);
  std::vector<std::uint64_t> gone(must.size(), 0);
  const auto density = [&](std::uint32_t i) {
    const Storage& s = in.storages[i];
    return static_cast<double>(s.accesses) / static_cast<double>(s.bytes);
  };
  for (std::uint32_t k = 0; k < must.size(); ++k) {
    auto& here = needed[k];
    std::ranges::stable_sort(here, [&](auto a, auto b) { return density(a) < density(b); });
    for (std::uint32_t i : here) {
      if (must[k] - std::min(must[k], gone[k]) <= in.limit) break;
      if (chosen[i]) continue;
      chosen[i] = true;
      const auto bytes = round_up(in.storages[i].bytes, in.footprint.granule_bytes());
      for_each_op_of(in, i, [&](std::uint32_t at) { gone[at] += bytes; });
    }
  }
  return chosen;
}

}  // namespace sentinel::plan
