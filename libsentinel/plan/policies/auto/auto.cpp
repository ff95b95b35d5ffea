// The project's own policy: a search over plans that the simulator judges.
//
// Tensors are cut into parts, so that a plan may keep, move or remake a part of a large one. A plan
// follows from few numbers (Recipe): the price of moving a byte against that of computing one says
// which idle parts are swapped and which remade, cover() takes those that cost least, host memory
// and SSD are filled so that both links stay busy, replays keep what is needed soon. Solutions of
// the bound's program and all recipes of a grid are tried, then the best is refined by flipping
// single tensors where its time goes (plan/automatic/). Fetches are timed by when writes really end
// (plan/gaps/pace.h). The simulator judges each plan; the best one seen is the answer, so more
// effort is never worse.
//
// The plans of the quick published policies are judged first; the best of them is a floor (left out
// by --without floor). Moves in place on byte-addressable tiers are planned by them alone.
#include <algorithm>
#include <array>
#include <optional>

#include "base/clock.h"
#include "plan/gaps/remade.h"
#include "plan/policies/auto/search.h"
#include "plan/step/parts.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::string_view kFloor = "floor", kParts = "parts";
constexpr std::array kFeatures{kFloor, kParts, kCopies, kRefine};

constexpr std::uint64_t kPartsOfBudget = 160;  // parts are at most this share of the budget
constexpr std::uint64_t kMostParts = 20000;    // in the whole step

constexpr double kFloorShare = 0.08;    // of the time limit, for each policy of the floor
constexpr double kWithoutShare = 0.15;  // of what is left, where replays have been a gain

// Whose plans are a floor, the quick ones first.
constexpr std::string_view kOfReplays = "superneurons";  // where a training run has replays
constexpr std::array<std::string_view, 7> kOthers{"sentinel", "g10",      "lms",     "tensile",
                                                  "home",     "capuchin", kOfReplays};

std::uint64_t part_bytes(const Profile& profile, const Machine& machine,
                         const PlanOptions& options) {
  if (!options.parts || !uses(options, kParts)) return 0;
  double sum = 0;
  for (const Tensor& t : profile.tensors) sum += static_cast<double>(t.bytes);
  const double wanted = std::max(static_cast<double>(options.fast_bytes) / kPartsOfBudget,
                                 sum / static_cast<double>(kMostParts));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(wanted), 16 * machine.granule_bytes);
}

class AutoPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "auto"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (!options.judge)
      throw Error("policy auto tries its plans on a simulator, and none was given");
    std::optional<Plan> best;
    double best_us = Facts::kNever;
    std::string reason;
    const auto consider = [&](const auto& make) {
      try {
        Plan plan = make();
        const double us = options.judge(profile, machine, plan).step_us;
        if (us < best_us) best_us = us, best = std::move(plan);
      } catch (const Error& error) {
        if (reason.empty()) reason = error.what();
      }
    };
    const auto begin = Clock::now();
    const auto seconds_left = [&] {
      return std::max(options.time_limit_s - seconds_since(begin), 0.0);
    };
    const double least_us = ideal_us(profile) * (1 + 1e-9);
    const auto goes_on = [&] { return best_us > least_us && (!best || seconds_left() > 0); };
    const bool frames = Facts::framed(machine, options);
    for (std::string_view other : kOthers)
      if (uses(options, kFloor) && goes_on() && (frames || other != kOfReplays))
        consider([&] { return planned_by(other, profile, machine, options); });
    // A training run's plans: replays stay only where they are a gain.
    PlanOptions rest = options;
    if (frames && goes_on()) {
      const bool gain = best && !best->recomputations.empty();
      rest.time_limit_s = seconds_left() * (gain ? kWithoutShare : 0.5);
      rest.recompute = false;
      consider([&] { return searched(profile, machine, rest, nullptr); });
    }
    rest.recompute = options.recompute;
    rest.time_limit_s = seconds_left();
    if (goes_on())
      consider([&] { return searched(profile, machine, rest, best ? &*best : nullptr); });
    if (!best) throw Error(reason);
    give_replay_reasons(*best, in_parts(profile, best->part_bytes), machine);
    best->policy = "auto";
    best->predicted_step_us = best_us;
    return *std::move(best);
  }

 private:
  static Plan searched(const Profile& profile, const Machine& machine, const PlanOptions& options,
                       const Plan* start) {
    const std::uint64_t bytes = part_bytes(profile, machine, options);
    const Profile cut = in_parts(profile, bytes);
    const Facts facts(profile, bytes, cut, machine, options);
    Search search(facts);
    Candidate found = search.run(start);
    found.plan.part_bytes = bytes;
    found.plan.effort = search.judged();
    return std::move(found.plan);
  }

  static Plan planned_by(std::string_view name, const Profile& profile, const Machine& machine,
                         PlanOptions options) {
    options.without.clear();
    options.time_limit_s *= kFloorShare;
    const auto policy = make_policy(name);
    return dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, options);
  }
};

}  // namespace

std::unique_ptr<Policy> make_auto() { return std::make_unique<AutoPolicy>(); }

}  // namespace sentinel::plan
