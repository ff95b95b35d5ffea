// The project's own policy: a search over plans that the simulator judges.
//
// Tensors are cut into parts, so that a plan may keep, move or remake a part of a large one. A plan
// follows from few numbers (Recipe): the price of moving a byte against that of computing one says
// which idle parts are swapped and which remade, cover() takes those that cost least, host memory
// and SSD are filled so that both links stay busy, replays keep what is needed soon. All recipes of
// a grid are tried, then the best is refined by flipping single tensors where ops still wait. The
// simulator judges each plan; the best one seen is the answer, so more effort is never worse.
//
// Within the time limit the plans of the quick published policies are judged too, and the best of
// them is a floor (left out by --without floor). Moves in place on byte-addressable tiers are
// planned by them alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "plan/cover.h"
#include "plan/decisions.h"
#include "plan/footprint.h"
#include "plan/lanes.h"
#include "plan/parts.h"
#include "plan/policies/all.h"
#include "plan/rates.h"
#include "plan/schedule.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::string_view kFloor = "floor", kParts = "parts", kRefine = "refine";
constexpr std::array kFeatures{kFloor, kParts, kRefine};

constexpr std::uint64_t kDefaultEffort = 160;  // plans judged
constexpr std::uint64_t kPartsOfBudget = 160;  // parts are at most this share of the budget
constexpr std::uint64_t kMostParts = 20000;    // in the whole step
constexpr std::array kPrices{0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, kNever};
constexpr std::array kSlacks{0.0, 0.04, 0.12, 0.25, 0.4};

struct Recipe {
  double price = 0;  // of moving for 1 us, in us of computing; 0: nothing is remade
  double slack = 0;  // share of the budget left free for transfers and replays
};

struct Candidate {
  std::vector<Decision> decisions;
  Plan plan;
  Verdict verdict{.step_us = kNever};
};

class Search {
 public:
  Search(const Profile& profile, const Machine& machine, const PlanOptions& options,
         const Judge& judge)
      : profile_(profile),
        machine_(machine),
        options_(options),
        judge_(judge),
        storages_(storages(profile)),
        gaps_(idle_gaps(profile, storages_)),
        remake_us_per_byte_(remake_costs()),
        held_(held()),
        random_(options.seed) {}

  // Throws the last reason where no plan fits.
  Candidate run();
  std::uint64_t judged() const { return judged_; }

 private:
  std::vector<double> remake_costs() const;
  std::vector<std::uint64_t> held() const;
  bool out_of_time() const {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    return std::chrono::duration<double>(passed).count() > 0.8 * options_.time_limit_s ||
           judged_ >= effort();
  }
  std::uint64_t effort() const { return options_.effort ? options_.effort : kDefaultEffort; }
  double swap_us_per_byte(const IdleGap&) const;
  std::vector<Decision> decisions(const Recipe&) const;
  void try_recipe(const Recipe&);
  void refine();
  std::vector<Decision> flipped(const Candidate&);
  bool try_decisions(std::vector<Decision>);
  std::uint32_t stalled_op();

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  const Judge& judge_;
  std::vector<Storage> storages_;
  std::vector<IdleGap> gaps_;
  std::vector<double> remake_us_per_byte_;  // per gap; infinite where not legal
  std::vector<std::uint64_t> held_;
  std::mt19937_64 random_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t judged_ = 0;
  Recipe best_recipe_;
  Candidate best_;
  std::string reason_ = "no plan was tried";
};

// A replay makes all of its op's outputs at once, so its time is divided among their bytes.
std::vector<double> Search::remake_costs() const {
  const Replay replay(profile_);
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  std::vector<double> costs;
  for (const IdleGap& g : gaps_) {
    double cost = kNever;
    if (g.next < ops && g.needed) {
      const TensorId t = storages_[g.storage].at(g.next, ops);
      const auto maker = replay.maker(t, OpId(g.next));
      std::vector<TensorId> dead;
      if (maker && replay.possible(*maker) && replay.inputs_valid(*maker, OpId(g.next), dead)) {
        double bytes = 0;
        for (TensorId out : profile_.ops[maker->index()].out)
          if (replay.alive(out, OpId(g.next)))
            bytes += static_cast<double>(profile_.tensors[out.index()].bytes);
        cost = profile_.ops[maker->index()].us / std::max(bytes, 1.0);
      }
    }
    costs.push_back(cost);
  }
  return costs;
}

std::vector<std::uint64_t> Search::held() const {
  const Footprint footprint(profile_, {}, machine_.granule_bytes);
  return demand(profile_, storages_, std::vector<bool>(storages_.size(), true), footprint).all;
}

double Search::swap_us_per_byte(const IdleGap& g) const {
  return (g.dirty ? 1 / rate(machine_, 0, 1) : 0) + (g.needed ? 1 / rate(machine_, 1, 0) : 0);
}

std::vector<Decision> Search::decisions(const Recipe& recipe) const {
  std::vector<double> cost;
  std::vector<Remedy> remedy;
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    const double swap = swap_us_per_byte(gaps_[i]);
    const double priced = recipe.price == kNever ? kNever : recipe.price * swap;
    const bool remake = options_.recompute && recipe.price > 0 && gaps_[i].needed &&
                        remake_us_per_byte_[i] < priced;
    remedy.push_back(remake ? Remedy::recompute : Remedy::swap);
    cost.push_back(remake ? remake_us_per_byte_[i] / std::max(recipe.price, 1e-9) : swap);
  }
  const auto limit =
      static_cast<std::uint64_t>((1 - recipe.slack) * static_cast<double>(options_.fast_bytes));
  // With one price for all, Belady's rule moves least.
  const bool alike = !options_.recompute || recipe.price == 0 || recipe.price == kNever;
  std::vector<Decision> result;
  for (std::uint32_t g : cover({.gaps = gaps_,
                         .held = held_,
                         .limit = limit,
                         .cost = alike ? std::span<const double>{} : cost})) {
    const IdleGap& gap = gaps_[g];
    result.push_back({.storage = gap.storage,
                      .use = gap.use,
                      .next = gap.next,
                      .remedy = remedy[g],
                      .fetch = gap.use + 1});
  }
  return result;
}

bool Search::try_decisions(std::vector<Decision> decided) {
  ++judged_;
  assign_tiers(profile_, storages_, machine_, best_.verdict.op_stall_us, decided);
  try {
    Candidate c{.plan = decided_plan("auto", profile_, machine_, options_, decided).plan};
    c.verdict = judge_(profile_, machine_, c.plan);
    c.decisions = std::move(decided);
    if (c.verdict.step_us >= best_.verdict.step_us) return false;
    best_ = std::move(c);
    return true;
  } catch (const Error& error) {
    reason_ = error.what();
    return false;
  }
}

void Search::try_recipe(const Recipe& recipe) {
  if (try_decisions(decisions(recipe))) best_recipe_ = recipe;
}

std::uint32_t Search::stalled_op() {
  const auto& stalls = best_.verdict.op_stall_us;
  double sum = 0;
  for (double s : stalls) sum += std::max(0.0, s);
  double at = std::uniform_real_distribution(0.0, std::max(sum, 1e-9))(random_);
  for (std::uint32_t k = 0; k < stalls.size(); ++k)
    if ((at -= std::max(0.0, stalls[k])) <= 0) return k;
  return static_cast<std::uint32_t>(stalls.size() - 1);
}

// Near an op that waits, some tensors are remade that were moved, moved that were remade, kept
// that left, or let go that were kept.
std::vector<Decision> Search::flipped(const Candidate& c) {
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  const std::uint32_t k = stalled_op();
  const std::uint32_t reach = 1 + static_cast<std::uint32_t>(random_() % std::max(2u, ops / 16));
  const auto near = [&](std::uint32_t position) {
    const std::uint32_t distance = (position % ops + ops - k) % ops;
    return std::min(distance, ops - distance) <= reach;
  };
  const std::uint64_t chance = 1 + random_() % 4;  // in four
  const std::uint64_t what = random_() % 4;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Decision> by_gap;
  for (const Decision& d : c.decisions) by_gap[{d.storage, d.use}] = d;
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    const IdleGap& g = gaps_[i];
    if ((!near(g.use) && !near(g.next)) || random_() % 4 >= chance) continue;
    const auto found = by_gap.find({g.storage, g.use});
    const bool remakable = options_.recompute && remake_us_per_byte_[i] < kNever;
    if (found == by_gap.end()) {
      if (what >= 2)
        by_gap[{g.storage, g.use}] = {
            .storage = g.storage,
            .use = g.use,
            .next = g.next,
            .remedy = what == 2 && remakable ? Remedy::recompute : Remedy::swap,
            .fetch = g.use + 1};
    } else if (what == 0 && remakable) {
      found->second.remedy =
          found->second.remedy == Remedy::swap ? Remedy::recompute : Remedy::swap;
    } else if (what == 1) {
      by_gap.erase(found);
    }
  }
  std::vector<Decision> result;
  for (const auto& [gap, decision] : by_gap) result.push_back(decision);
  return result;
}

void Search::refine() {
  while (!out_of_time() && best_.verdict.step_us < kNever &&
         best_.verdict.step_us > ideal_us(profile_) * (1 + 1e-6))
    try_decisions(flipped(best_));
}

Candidate Search::run() {
  for (double slack : kSlacks)
    for (double price : kPrices) {
      if (price > 0 && !options_.recompute) continue;
      const bool found = best_.verdict.step_us < kNever;
      if (found && (out_of_time() || best_.verdict.step_us <= ideal_us(profile_) * (1 + 1e-6)))
        break;
      try_recipe({.price = price, .slack = slack});
    }
  if (best_.verdict.step_us == kNever) throw Error(reason_);
  if (uses(options_, kRefine)) refine();
  return std::move(best_);
}

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
    double best_us = kNever;
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
    consider([&] { return searched(profile, machine, options); });
    if (uses(options, kFloor))
      for (std::string_view other : {"sentinel", "g10"})
        consider([&] { return planned_by(other, profile, machine, options); });
    if (!best) throw Error(reason);
    best->policy = "auto";
    best->predicted_step_us = best_us;
    return *std::move(best);
  }

 private:
  static Plan searched(const Profile& profile, const Machine& machine, const PlanOptions& options) {
    const std::uint64_t bytes = part_bytes(profile, machine, options);
    const Profile cut = in_parts(profile, bytes);
    Search search(cut, machine, options, options.judge);
    Candidate found = search.run();
    found.plan.part_bytes = bytes;
    found.plan.effort = search.judged();
    return std::move(found.plan);
  }

  static Plan planned_by(std::string_view name, const Profile& profile, const Machine& machine,
                         PlanOptions options) {
    options.without.clear();
    const auto policy = make_policy(name);
    return dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, options);
  }
};

}  // namespace

std::unique_ptr<Policy> make_auto() { return std::make_unique<AutoPolicy>(); }

}  // namespace sentinel::plan
