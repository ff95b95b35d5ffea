// HOME (He et al., "HOME: A Holistic GPU Memory Management Framework for Deep Learning"): keep,
// swap or recompute every feature map, by particle swarm over a cost model of the whole step.
//
// Modelled: feature maps (what forward leaves for backward) as the dimensions of a particle; the
// swarm of its Algorithms 1 and 3 with the paper's 500 particles and 500 iterations (swarm.h); the
// cost model of its Algorithm 2 (cost_model.h), evaluated again only where a change matters;
// asynchronous offload at the last forward use, prefetch ahead of the backward use.
// Added: seeds and rounds, which reach the paper's plan in a fraction of its time (left out with
// --without seeds); replays only where they are legal; several slower tiers, filled in order; how
// long before its use a prefetch begins is chosen once for the step.
// Left out: the framework's own costs of allocation and of host calls. Weights, gradients and
// optimizer state stay, as in the paper: where they leave too little, the method fails. Where
// granules are frames, which tensors share, it does not: what its choices leave too much leaves by
// the rule of the farthest next use (plan/gaps/scheduled.h).
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "base/in_parallel.h"
#include "plan/gaps/feature_maps.h"
#include "plan/gaps/pressure.h"
#include "plan/gaps/remade.h"
#include "plan/gaps/scheduled.h"
#include "plan/search/choice_seeds.h"
#include "plan/search/cost_run.h"
#include "plan/search/search.h"
#include "plan/search/swarm.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kSeeds = "seeds";
constexpr std::array kFeatures{kSeeds};
struct Prefetch {
  double lead, window;  // CostInput's
};
// The likeliest first: a short time limit ends the comparison.
constexpr std::array kPrefetches{Prefetch{1, 0.5}, Prefetch{2, 1},  Prefetch{0, 1},
                                 Prefetch{2, 0.5}, Prefetch{1, 1},  Prefetch{0.5, 0.5},
                                 Prefetch{4, 1},   Prefetch{4, 0.5}};
// Of the limit: the plan rounds where the model does not, and may need a little more.
constexpr std::array kMargins{1.0, 0.99, 0.97, 0.94};
constexpr double kSearchShare = 0.9;  // of the time limit; the rest is for making the plan

struct Start {
  std::optional<CostModel> model;
  std::vector<std::vector<Remedy>> seeds;
  Cost best{UINT64_MAX, 0};
};

class HomePlanner {
 public:
  HomePlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        deadline_(Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(kSearchShare * options.time_limit_s))),
        basis_(profile, machine, shared_layout(profile, machine, options)),
        storages_(basis_.storages),
        gaps_(movable_maps()) {}

  Plan plan() {
    if (granules_are_shared(machine_)) return scheduled();
    const CostModel all_kept = model(budget(), kPrefetches.front(), options_.recompute);
    if (worst_shortage(all_kept.held(), budget()).bytes == 0) return made({}).plan;
    for (double margin : kMargins) {
      const auto limit = static_cast<std::uint64_t>(margin * static_cast<double>(budget()));
      const Start start = best_start(limit, options_.recompute);
      const SwarmResult found = search(start);
      if (found.cost.excess > 0) refuse_all(start, limit);
      try {
        Plan plan = made(start.model->decisions(found.choices, found.tiers)).plan;
        plan.effort = found.rounds;
        plan.predicted_step_us = found.cost.us();
        give_replay_reasons(plan, profile_, machine_);
        return plan;
      } catch (const Error&) {
        if (margin == kMargins.back()) throw;
      }
    }
    throw Error("unreachable");
  }

 private:
  std::uint64_t budget() const { return options_.fast_bytes; }

  // Of what lies in a pool that never moves, nothing is decided.
  std::vector<IdleGap> movable_maps() const {
    auto maps = feature_maps(profile_, storages_);
    if (granules_are_shared(machine_))
      std::erase_if(maps, [&](const IdleGap& map) {
        return !basis_.movable[map.storage] ||
               freed_bytes(basis_.footprint, storages_[map.storage]) == 0;
      });
    return maps;
  }

  // Where granules are frames, HOME's choices are the beginning of a schedule, which lets weights
  // leave too where they are too much. The model is asked for what it can reach at the best, and
  // for what is left to it once the schedule has helped as much as it has to.
  Plan scheduled() {
    Plan fits = scheduled_plan("home", basis_, options_, {}, {});
    if (fits.moves.empty()) return fits;
    std::vector<Plan> plans;
    std::uint64_t rounds = 0;
    const auto share = (deadline_ - Clock::now()) / (options_.recompute ? 4 : 2);
    deadline_ = Clock::now();
    const auto add = [&](std::uint64_t limit, bool recompute) {
      deadline_ += share;
      const Start start = best_start(limit, recompute);
      const SwarmResult found = search(start);
      rounds += found.rounds;
      plans.push_back(scheduled_plan("home", basis_, options_,
                                     start.model->decisions(found.choices, found.tiers), {}));
      CostRun run(*start.model);
      run.evaluate(found.choices);
      return worst_shortage(run.held(), limit).bytes;
    };
    for (const bool recompute : {false, true}) {
      if (recompute && !options_.recompute) break;
      if (const std::uint64_t missing = add(budget(), recompute); missing > 0)
        add(budget() + missing, recompute);
    }
    Plan best = quickest(profile_, machine_, options_, std::move(plans));
    best.effort = rounds;
    return best;
  }

  CostModel model(std::uint64_t limit, const Prefetch& prefetch, bool recompute) const {
    return CostModel({.profile = profile_,
                      .machine = machine_,
                      .storages = storages_,
                      .gaps = gaps_,
                      .limit = limit,
                      .lead = prefetch.lead,
                      .window = prefetch.window,
                      .recompute = recompute,
                      .basis = granules_are_shared(machine_) ? &basis_ : nullptr});
  }

  DecidedPlan made(const std::vector<Decision>& decisions) const {
    return decided_plan("home", profile_, machine_, options_, decisions);
  }

  // The way to prefetch whose best seed is best; past the deadline, of those looked at so far.
  Start best_start(std::uint64_t limit, bool recompute) const {
    std::array<Start, kPrefetches.size()> starts;
    in_quiet_thread([&] {
      in_parallel(starts.size(), [&](std::size_t n) {
        if (n == 0 || Clock::now() < deadline_) starts[n] = start(limit, kPrefetches[n], recompute);
      });
    });
    return std::move(*std::ranges::min_element(starts, {}, &Start::best));
  }

  Start start(std::uint64_t limit, const Prefetch& prefetch, bool recompute) const {
    Start result;
    result.model.emplace(model(limit, prefetch, recompute));
    result.seeds = choice_seeds(*result.model, deadline_);
    CostRun run(*result.model);
    std::size_t best = 0, looked_at = 0;
    for (; looked_at < result.seeds.size(); ++looked_at) {
      if (looked_at > 0 && Clock::now() >= deadline_) break;
      const Cost cost = run.evaluate(result.seeds[looked_at]);
      if (cost < result.best) result.best = cost, best = looked_at;
    }
    std::swap(result.seeds.front(), result.seeds[best]);
    result.seeds.resize(looked_at);
    return result;
  }

  SwarmResult search(const Start& start) const {
    SwarmOptions swarm{
        .seed = options_.seed, .deadline = deadline_, .as_published = !uses(options_, kSeeds)};
    if (options_.effort > 0) swarm.rounds = options_.effort;
    return swarm_search(*start.model, start.seeds, swarm);
  }

  [[noreturn]] void refuse_all(const Start& start, std::uint64_t limit) const {
    CostRun run(*start.model);
    run.evaluate(start.seeds.front());
    refuse("HOME", profile_, worst_shortage(run.held(), limit), options_.fast_bytes);
  }

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  Clock::time_point deadline_;
  Basis basis_;
  const std::vector<Storage>& storages_;
  std::vector<IdleGap> gaps_;
};

class HomePolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "home"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    return HomePlanner(profile, machine, options).plan();
  }
};

}  // namespace

std::unique_ptr<Policy> make_home() { return std::make_unique<HomePolicy>(); }

}  // namespace sentinel::plan
