// Groups replays by the op that they precede, and adds the machine's costs.
#include "plan/check/made_again.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "plan/step/rates.h"

namespace sentinel::plan {

std::vector<MadeAgain> made_again(const Plan& plan, const Profile& profile,
                                  const Machine& machine) {
  std::map<OpId, MadeAgain> groups;
  std::map<std::pair<TensorId, OpId>, OpId> kept;  // by the op before which it is back: its maker
  for (const Recompute& r : plan.recomputations) {
    auto& group = groups[r.before];
    group.before = r.before;
    group.replays.push_back(r.op);
    group.us += profile.ops[r.op.index()].us;
    for (const TensorId t : r.keep) kept[{t, r.before}] = r.op;
  }
  for (const Move& move : plan.moves) {
    if (move.direction != Direction::discard) continue;
    const auto found = kept.upper_bound({move.tensor, move.trigger});
    if (found == kept.end() || found->first.first != move.tensor) continue;
    auto& group = groups[found->first.second];
    const auto bytes = static_cast<double>(profile.tensors[move.tensor.index()].bytes);
    group.tensors.push_back({.tensor = move.tensor, .maker = found->second, .since = move.trigger});
    group.us += remaking_us(machine, bytes);
    group.move_us +=
        bytes / rate(machine, 0, 1) + bytes / rate(machine, 1, 0) + moving_us(machine, 2 * bytes);
  }
  std::vector<MadeAgain> result;
  for (auto& group : std::views::values(groups)) result.push_back(std::move(group));
  return result;
}

// What was not trained here, as a trace, names no framework.
std::string_view why_no_replays(std::string_view machine, const ProfileMeta& meta) {
  const bool pageable = machine.find("-pageable") != machine.npos;
  if (machine.starts_with("local-node") || pageable) return kInPlace;
  const bool can = meta.framework.empty() || meta.framework.starts_with("torch");
  return can ? "" : kAdaptorCannot;
}

}  // namespace sentinel::plan
