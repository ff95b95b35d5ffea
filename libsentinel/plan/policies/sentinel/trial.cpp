// Compares waiting for late promotions with leaving them, all intervals at once and each alone.
#include "plan/policies/sentinel/trial.h"

#include <algorithm>
#include <map>
#include <set>

namespace sentinel::plan {
namespace {

struct Occurrence {  // of Case 3, at one interval
  double stall_us = 0;
  std::vector<std::uint32_t> gaps;  // due there, at ops that waited
};

// A shorter wait than this share of the step is rounding.
constexpr double kNoticeable = 1e-6;

std::map<std::uint32_t, Occurrence> occurrences(const TrialInput& in, const Verdict& verdict,
                                                const Fates& fates) {
  std::map<std::uint32_t, Occurrence> late;
  std::set<std::uint32_t> counted;
  for (std::uint32_t g = 0; g < in.schedule.gaps.size(); ++g) {
    const Gap& gap = in.schedule.gaps[g];
    if (!gap.needed || gap.unfetched || fates[g] == Fate::leave) continue;
    if (!in.in_place[gap.storage]) continue;
    const std::uint32_t op = gap.next % in.ops;
    const double stall = verdict.op_stall_us[op];
    if (stall <= kNoticeable * verdict.step_us) continue;
    Occurrence& o = late[in.intervals.of(op)];
    o.gaps.push_back(g);
    if (counted.insert(op).second) o.stall_us += stall;
  }
  return late;
}

}  // namespace

Settled settle_at_once(const TrialInput& in) {
  Settled none{Fates(in.schedule.gaps.size(), Fate::move)};
  const Verdict waiting = in.judge(none.fates);
  none.step_us = waiting.step_us;
  none.trials = 1;
  const auto late = occurrences(in, waiting, none.fates);
  if (late.empty() || in.out_of_time()) return none;
  Settled all = none;
  for (const auto& [interval, o] : late)
    for (std::uint32_t g : o.gaps) all.fates[g] = Fate::leave;
  all.step_us = in.judge(all.fates).step_us;
  none.trials = all.trials = 2;
  return all.step_us < none.step_us ? all : none;
}

Settled settle_each(const TrialInput& in, Settled best, std::uint32_t trials) {
  std::set<std::uint32_t> tried;
  while (best.trials < trials && !in.out_of_time()) {
    const auto late = occurrences(in, in.judge(best.fates), best.fates);
    ++best.trials;
    std::vector<std::pair<double, std::uint32_t>> order;  // the longest wait first
    for (const auto& [interval, o] : late)
      if (!tried.contains(interval)) order.emplace_back(-o.stall_us, interval);
    std::ranges::sort(order);
    bool better = false;
    for (const auto& [stall, interval] : order) {
      if (better || best.trials >= trials || in.out_of_time()) break;
      tried.insert(interval);
      Settled other = best;
      for (std::uint32_t g : late.at(interval).gaps) other.fates[g] = Fate::leave;
      other.step_us = in.judge(other.fates).step_us;
      ++other.trials;
      best.trials = other.trials;
      if ((better = other.step_us < best.step_us)) best = std::move(other);
    }
    if (!better) break;
  }
  return best;
}

}  // namespace sentinel::plan
