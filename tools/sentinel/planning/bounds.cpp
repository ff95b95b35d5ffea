// Computes the lower bound of a scenario once, and sets it in each trial.
#include "planning/bounds.h"

#include <algorithm>

#include "plan/bound/bound.h"
#include "sentinel/analysis.h"

namespace sentinel::cli {
namespace {

// For each of the two: more checkpoints hardly raise them.
constexpr double kBoundSeconds = 2, kShareOfLimit = 0.2;

// Noise shortens an op by up to its share. Moves may be made beside ops of the step before, whose
// times are others: no step's bound may count on more than this.
Profile shortest(const Profile& profile, double noise) {
  Profile result = profile;
  for (Op& op : result.ops) op.us *= 1 - noise;
  return result;
}

}  // namespace

void Bounds::set(const Scenario& s, const std::string& variant, PolicyTrial& trial) {
  if (!trial.result) return;
  const double ideal = trial.result->ideal_us;  // of the very times that its ops met
  trial.lower_bound_us = trial.swap_lower_bound_us = ideal;
  // The program's step begins as it ends, which a first step need not.
  if (s.steps == 1 || trial.result->peak_fast_bytes > trial.fast_bytes) return;
  const auto [at, missing] = known_.emplace(std::pair(variant, trial.fast_bytes), Pair{});
  Pair& pair = at->second;
  if (missing) {
    const Profile profile = shortest(s.profile, s.noise);
    plan::BoundOptions options{
        .fast_bytes = trial.fast_bytes,
        .time_limit_s = std::min(kShareOfLimit * s.plan.time_limit_s, kBoundSeconds)};
    pair.swap_us = plan::lower_bound(profile, s.machine, options).step_us;
    options.recompute = true;
    pair.any_us =
        s.plan.recompute ? plan::lower_bound(profile, s.machine, options).step_us : pair.swap_us;
    // What holds for plans that may recompute holds for others too.
    pair.swap_us = std::max(pair.swap_us, pair.any_us);
  }
  trial.lower_bound_us = std::max(ideal, pair.any_us);
  trial.swap_lower_bound_us = std::max(ideal, pair.swap_us);
}

}  // namespace sentinel::cli
