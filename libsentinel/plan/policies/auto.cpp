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
#include <set>

#include "plan/bound.h"
#include "plan/cover.h"
#include "plan/decisions.h"
#include "plan/footprint.h"
#include "plan/lanes.h"
#include "plan/level.h"
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

constexpr std::size_t kLongestChain = 24;  // of replays, where it is estimated what remaking costs
constexpr std::uint64_t kDefaultEffort = 1000;  // plans judged
constexpr std::uint64_t kPartsOfBudget = 160;   // parts are at most this share of the budget
constexpr std::uint64_t kMostParts = 20000;     // in the whole step
constexpr std::array kPrices{0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0};
constexpr std::array kStrides{1.0 / 96, 1.0 / 48, 1.0 / 24, 1.0 / 12};
constexpr std::array kSlacks{0.0, 0.03, 0.08, 0.16, 0.3};
constexpr std::uint32_t kBoundBuckets = 100;
constexpr std::array kBoundSlacks{0.0, 0.01, 0.02, 0.035, 0.05, 0.08};
constexpr double kFinestPrice = 1.04;

// Whose plans are a floor, the quick ones first.
constexpr std::array<std::string_view, 6> kOthers{"sentinel", "g10",  "lms",
                                                  "tensile",  "home", "capuchin"};

struct Recipe {
  double price = 0;   // of moving for 1 us, in us of computing; 0: nothing is remade
  double slack = 0;   // share of the budget left free for transfers and replays
  double stride = 0;  // what crosses the end of each such share of the step is not remade: chains
                      // of replays begin there; 0: no such ends
};

struct Candidate {
  std::vector<Decision> decisions;
  Plan plan;
  Verdict verdict{.step_us = kNever};
};

class Search {
 public:
  // `profile` is `whole` cut into parts of `part_bytes`.
  Search(const Profile& whole, std::uint64_t part_bytes, const Profile& profile,
         const Machine& machine, const PlanOptions& options, const Judge& judge)
      : whole_(whole),
        part_bytes_(part_bytes),
        profile_(profile),
        machine_(machine),
        options_(options),
        judge_(judge),
        storages_(storages(profile)),
        gaps_(idle_gaps(profile, storages_)),
        makers_(makers()),
        remake_us_per_byte_(remake_costs()),
        held_(held()),
        random_(options.seed) {}

  // Throws the last reason where no plan fits.
  Candidate run();
  std::uint64_t judged() const { return judged_; }

 private:
  std::vector<std::optional<OpId>> makers() const;
  std::vector<double> remake_costs() const;
  std::vector<std::uint64_t> held() const;
  // No plan beats the sum of the op times; otherwise time or effort is spent.
  bool finished() const {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    return std::chrono::duration<double>(passed).count() > 0.8 * options_.time_limit_s ||
           judged_ >= effort() || best_.verdict.step_us <= ideal_us(profile_) * (1 + 1e-9);
  }
  std::uint64_t effort() const { return options_.effort ? options_.effort : kDefaultEffort; }
  double swap_us_per_byte(const IdleGap&) const;
  std::vector<bool> checkpoints(double stride) const;
  std::vector<Decision> decisions(const Recipe&) const;
  bool try_recipe(const Recipe&);
  void try_bound(double slack);
  std::vector<Decision> rounded(const Bound&) const;
  void cover_rest(double slack, std::vector<Decision>&) const;
  void try_grid();
  void sharpen();
  void refine();
  using Decisions = std::map<std::pair<std::uint32_t, std::uint32_t>, Decision>;  // storage, use
  std::vector<Decision> flipped(const Candidate&);
  void fewer_replays(const Candidate&, double replays_us, Decisions&);
  void relieve(std::uint32_t stalled, Decisions&);
  bool try_decisions(std::vector<Decision>, bool choose_tiers = true);
  std::uint32_t stalled_op();

  const Profile& whole_;
  std::uint64_t part_bytes_;
  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  const Judge& judge_;
  std::vector<Storage> storages_;
  std::vector<IdleGap> gaps_;
  std::vector<std::optional<OpId>> makers_;  // per gap: the op that made what its next use reads
  std::vector<double> remake_us_per_byte_;   // per gap; infinite where not legal
  std::vector<std::uint64_t> held_;
  std::mt19937_64 random_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t judged_ = 0;
  Recipe best_recipe_;
  Candidate best_;
  std::string reason_ = "no plan was tried";
};

std::vector<std::optional<OpId>> Search::makers() const {
  const Replay replay(profile_);
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  std::vector<std::optional<OpId>> result;
  for (const IdleGap& g : gaps_)
    result.push_back(g.next < ops ? replay.maker(storages_[g.storage].at(g.next, ops), OpId(g.next))
                                  : std::nullopt);
  return result;
}

// What remaking costs while all it needs is there; a chain's time is divided among the bytes of all
// it makes.
std::vector<double> Search::remake_costs() const {
  const Replay replay(profile_);
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  std::vector<double> costs;
  for (const IdleGap& g : gaps_) {
    costs.push_back(kNever);
    if (g.next >= ops || !g.needed) continue;
    const OpId before(g.next);
    const auto chain = replay_chain(
        profile_, replay, storages_[g.storage].at(g.next, ops), before,
        [&](TensorId t) { return replay.alive(t, before); }, kLongestChain);
    double us = 0;
    std::set<TensorId> made;
    for (const Recompute& r : chain) {
      us += profile_.ops[r.op.index()].us;
      for (TensorId t : profile_.ops[r.op.index()].out)
        if (replay.alive(t, before)) made.insert(t);
    }
    double bytes = 0;
    for (TensorId t : made) bytes += static_cast<double>(profile_.tensors[t.index()].bytes);
    if (!chain.empty()) costs.back() = us / std::max(bytes, 1.0);
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

// Storages that a forward chain needs to go on past the end of a stride: used on both sides of it
// within one stride's length.
std::vector<bool> Search::checkpoints(double stride) const {
  const double length = stride * static_cast<double>(profile_.ops.size());
  std::vector<bool> result(storages_.size(), false);
  if (length < 1) return result;
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const auto& uses = storages_[i].uses;
    for (std::size_t u = 0; u + 1 < uses.size(); ++u)
      if (uses[u + 1] - uses[u] <= length &&
          std::floor(uses[u] / length) != std::floor(uses[u + 1] / length))
        result[i] = true;
  }
  return result;
}

std::vector<Decision> Search::decisions(const Recipe& recipe) const {
  const auto checkpoint = checkpoints(recipe.stride);
  std::vector<double> cost;
  std::vector<Remedy> remedy;
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    const double swap = swap_us_per_byte(gaps_[i]);
    const double priced = recipe.price * swap;
    const bool remake = options_.recompute && gaps_[i].needed && !checkpoint[gaps_[i].storage] &&
                        remake_us_per_byte_[i] < priced;
    remedy.push_back(remake ? Remedy::recompute : Remedy::swap);
    cost.push_back(remake ? remake_us_per_byte_[i] / std::max(recipe.price, 1e-9) : swap);
  }
  const auto limit =
      static_cast<std::uint64_t>((1 - recipe.slack) * static_cast<double>(options_.fast_bytes));
  // With one price for all, Belady's rule moves least.
  const bool alike = !options_.recompute || recipe.price == 0;
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

bool Search::try_decisions(std::vector<Decision> decided, bool choose_tiers) {
  ++judged_;
  if (choose_tiers) assign_tiers(profile_, storages_, machine_, best_.verdict.op_stall_us, decided);
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

bool Search::try_recipe(const Recipe& recipe) {
  if (!try_decisions(decisions(recipe))) return false;
  best_recipe_ = recipe;
  return true;
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

// Where time goes into replays, some of them become moves; where it goes into waiting, some tensors
// near the op that waits are remade that were moved, kept that left, or let go that were kept.
std::vector<Decision> Search::flipped(const Candidate& c) {
  double replays = 0, stalls = 0;
  for (const Recompute& r : c.plan.recomputations) replays += profile_.ops[r.op.index()].us;
  for (double s : c.verdict.op_stall_us) stalls += std::max(0.0, s);
  Decisions by_gap;
  for (const Decision& d : c.decisions) by_gap[{d.storage, d.use}] = d;
  if (std::uniform_real_distribution(0.0, replays + stalls + 1e-9)(random_) < replays)
    fewer_replays(c, replays, by_gap);
  else
    relieve(stalled_op(), by_gap);
  std::vector<Decision> result;
  for (const auto& [gap, decision] : by_gap) result.push_back(decision);
  return result;
}

void Search::fewer_replays(const Candidate& c, double replays_us, Decisions& by_gap) {
  std::set<OpId> chosen;
  for (std::uint64_t n = std::uint64_t{1} << random_() % 4; n > 0; --n) {
    double at = std::uniform_real_distribution(0.0, replays_us)(random_);
    for (const Recompute& r : c.plan.recomputations)
      if ((at -= profile_.ops[r.op.index()].us) <= 0) {
        chosen.insert(r.op);
        break;
      }
  }
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    if (!makers_[i] || !chosen.contains(*makers_[i])) continue;
    const auto found = by_gap.find({gaps_[i].storage, gaps_[i].use});
    if (found != by_gap.end()) found->second.remedy = Remedy::swap;
  }
}

void Search::relieve(std::uint32_t k, Decisions& by_gap) {
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  const std::uint32_t reach = 1 + static_cast<std::uint32_t>(random_() % std::max(2u, ops / 32));
  const auto near = [&](std::uint32_t position) {
    const std::uint32_t distance = (position % ops + ops - k) % ops;
    return std::min(distance, ops - distance) <= reach;
  };
  const std::uint64_t chance = 1 + random_() % 4;  // in four
  const std::uint64_t what = random_() % 3;
  for (std::size_t i = 0; i < gaps_.size(); ++i) {
    const IdleGap& g = gaps_[i];
    if ((!near(g.use) && !near(g.next)) || random_() % 4 >= chance) continue;
    const auto found = by_gap.find({g.storage, g.use});
    const bool remakable = options_.recompute && remake_us_per_byte_[i] < kNever;
    if (found == by_gap.end()) {
      if (what == 2)
        by_gap[{g.storage, g.use}] = {.storage = g.storage,
                                      .use = g.use,
                                      .next = g.next,
                                      .remedy = remakable ? Remedy::recompute : Remedy::swap,
                                      .fetch = g.use + 1};
    } else if (what == 0 && remakable) {
      found->second.remedy = Remedy::recompute;
    } else if (what == 1) {
      by_gap.erase(found);
    }
  }
}

void Search::refine() {
  while (!finished()) try_decisions(flipped(best_), false);
}

// The shares of the bound's solution become whole parts; what rounding loses in one gap goes to the
// next.
std::vector<Decision> Search::rounded(const Bound& bound) const {
  const auto first = first_parts(whole_, part_bytes_);
  const auto whole = storages(whole_);
  std::vector<std::uint32_t> of(profile_.tensors.size(), UINT32_MAX);
  for (std::uint32_t i = 0; i < storages_.size(); ++i) of[storages_[i].tensor.index()] = i;
  std::vector<double> owed(machine_.tiers.size(), 0);  // bytes: remade, then to each slower tier
  std::vector<Decision> result;
  for (const GapShare& g : bound.gaps) {
    const TensorId t = whole[g.storage].tensor;
    std::vector<double> want{g.recomputed};
    want.insert(want.end(), g.evicted.begin(), g.evicted.end());
    for (std::size_t i = 0; i < want.size(); ++i)
      owed[i] += want[i] * static_cast<double>(whole[g.storage].bytes);
    for (std::uint32_t part = first[t.index()]; part < first[t.index() + 1]; ++part) {
      const auto bytes = static_cast<double>(profile_.tensors[part].bytes);
      std::size_t most = 0;
      for (std::size_t i = 1; i < want.size(); ++i)
        if (want[i] > 0 && (want[most] == 0 || owed[i] > owed[most])) most = i;
      if (want[most] == 0 || owed[most] < bytes / 2 || of[part] == UINT32_MAX) continue;
      owed[most] -= bytes;
      result.push_back({.storage = of[part],
                        .use = g.use,
                        .next = g.next,
                        .remedy = most == 0 ? Remedy::recompute : Remedy::swap,
                        .tier = static_cast<std::uint32_t>(std::max<std::size_t>(most, 1)),
                        .fetch = g.use + 1});
    }
  }
  return result;
}

// What is too much after rounding leaves too.
void Search::cover_rest(double slack, std::vector<Decision>& decided) const {
  Level level(held_);
  std::set<std::pair<std::uint32_t, std::uint32_t>> taken;
  for (const Decision& d : decided) {
    taken.emplace(d.storage, d.use);
    level.add(d.use + 1, d.next, -static_cast<std::int64_t>(storages_[d.storage].bytes));
  }
  std::vector<std::uint64_t> held;
  for (std::uint32_t k = 0; k < held_.size(); ++k)
    held.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(0, level.at(k))));
  std::vector<IdleGap> rest;
  for (const IdleGap& g : gaps_)
    if (!taken.contains({g.storage, g.use})) rest.push_back(g);
  const auto limit =
      static_cast<std::uint64_t>((1 - slack) * static_cast<double>(options_.fast_bytes));
  for (std::uint32_t g : cover({.gaps = rest, .held = held, .limit = limit, .cost = {}}))
    decided.push_back({.storage = rest[g].storage,
                       .use = rest[g].use,
                       .next = rest[g].next,
                       .remedy = Remedy::swap,
                       .fetch = rest[g].use + 1});
}

void Search::try_bound(double slack) {
  const auto limit =
      static_cast<std::uint64_t>((1 - slack) * static_cast<double>(options_.fast_bytes));
  const Bound bound = lower_bound(
      whole_, machine_,
      {.fast_bytes = limit, .buckets = kBoundBuckets, .time_limit_s = options_.time_limit_s / 5});
  if (bound.gaps.empty()) return;
  std::vector<Decision> decided = rounded(bound);
  cover_rest(slack, decided);
  try_decisions(std::move(decided), false);
}

// Prices without ends of chains, ends at the best price, prices there, slack.
void Search::try_grid() {
  for (double slack : kSlacks) {  // until one fits
    for (double price : kPrices)
      if ((price == 0 || options_.recompute) && !finished())
        try_recipe({.price = price, .slack = slack});
    if (best_.verdict.step_us < kNever) break;
  }
  if (options_.recompute) {
    for (double stride : kStrides)
      for (double price : {best_recipe_.price, 0.4, 1.0})
        if (!finished())
          try_recipe({.price = price, .slack = best_recipe_.slack, .stride = stride});
  }
  for (double slack : kSlacks)
    if (!finished())
      try_recipe({.price = best_recipe_.price, .slack = slack, .stride = best_recipe_.stride});
}

// One number after the other, in ever smaller steps.
void Search::sharpen() {
  for (double step = 1.5; step > kFinestPrice && !finished(); step = std::sqrt(step)) {
    for (double Recipe::*number : {&Recipe::price, &Recipe::stride, &Recipe::slack})
      for (double factor : {step, 1 / step}) {
        Recipe recipe = best_recipe_;
        recipe.*number *= factor;
        if (recipe.*number != best_recipe_.*number && !finished()) try_recipe(recipe);
      }
  }
}

Candidate Search::run() {
  for (double slack : kBoundSlacks)
    if (!finished()) try_bound(slack);
  try_grid();
  if (best_.verdict.step_us == kNever) throw Error(reason_);
  if (uses(options_, kRefine)) {
    sharpen();
    refine();
  }
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
    const auto begin = std::chrono::steady_clock::now();
    const auto left_s = [&] {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      return options.time_limit_s - passed.count();
    };
    consider([&] { return searched(profile, machine, options); });
    const double least_us = ideal_us(profile) * (1 + 1e-9);
    for (std::string_view other : kOthers)
      if (uses(options, kFloor) && best_us > least_us && (left_s() > 0 || !best))
        consider([&] { return planned_by(other, profile, machine, options, left_s()); });
    if (!best) throw Error(reason);
    best->policy = "auto";
    best->predicted_step_us = best_us;
    return *std::move(best);
  }

 private:
  static Plan searched(const Profile& profile, const Machine& machine, const PlanOptions& options) {
    const std::uint64_t bytes = part_bytes(profile, machine, options);
    const Profile cut = in_parts(profile, bytes);
    Search search(profile, bytes, cut, machine, options, options.judge);
    Candidate found = search.run();
    found.plan.part_bytes = bytes;
    found.plan.effort = search.judged();
    return std::move(found.plan);
  }

  static Plan planned_by(std::string_view name, const Profile& profile, const Machine& machine,
                         PlanOptions options, double limit_s) {
    options.without.clear();
    options.time_limit_s = std::clamp(limit_s / 2, 0.1, 1.0);
    const auto policy = make_policy(name);
    return dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, options);
  }
};

}  // namespace

std::unique_ptr<Policy> make_auto() { return std::make_unique<AutoPolicy>(); }

}  // namespace sentinel::plan
