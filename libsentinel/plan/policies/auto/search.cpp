// Judges attempts in parallel by simulation, and flips the best until effort or time ends.
#include "plan/policies/auto/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/in_parallel.h"
#include "plan/bound/bound.h"
#include "plan/gaps/lanes.h"
#include "plan/policies/auto/rounding.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kDefaultEffort = 4000;
constexpr std::size_t kTogether = 4;  // plans made and judged at once
constexpr std::size_t kRounds = 20;   // of late acceptance
constexpr std::array kPrices{0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0};
constexpr std::array kStrides{1.0 / 192, 1.0 / 96, 1.0 / 48, 1.0 / 24, 1.0 / 12};
constexpr std::array kSlacks{0.0, 0.03, 0.08, 0.16, 0.3};
constexpr std::uint32_t kBoundBuckets = 100;
constexpr std::array kBoundSlacks{0.0, 0.02, 0.05, 0.08, 0.12, 0.2};
constexpr double kFinestStep = 1.04;
// Plans after the first: once more, copying ahead, once more.
constexpr std::uint64_t kBothWays = 3;

// What passes before each op: it waits, and others are replayed.
std::vector<double> waits_of(const Candidate& c, const Profile& profile) {
  std::vector<double> us = c.verdict.op_stall_us;
  us.resize(profile.ops.size(), 0);
  for (const Recompute& r : c.plan.recomputations)
    us[r.before.index()] += profile.ops[r.op.index()].us;
  return us;
}

// Now and then, what the flipped decisions are worth the other way.
ReplayWay another_way(ReplayWay way, std::size_t attempt) {
  if (attempt % 8 == 3) way.keep = !way.keep;
  if (attempt % 16 == 7) way.deep = !way.deep;
  return way;
}

}  // namespace

std::uint64_t Search::effort_left() const {
  const std::uint64_t most = facts_.options.effort != 0 ? facts_.options.effort : kDefaultEffort;
  return most - std::min(most, judged_);
}

double Search::seconds_left() const {
  return facts_.options.time_limit_s - 2 * slowest_s_ - seconds_since(begin_);
}

// No plan beats the sum of the op times; otherwise time or effort is spent.
bool Search::finished() const {
  return seconds_left() <= 0 || effort_left() == 0 ||
         best_.verdict.step_us <= ideal_us(facts_.profile) * (1 + 1e-9);
}

Candidate Search::judge(std::vector<Decision> decided, bool copies,
                        const Candidate* pace_of) const {
  std::optional<Pace> pace;
  if (pace_of != nullptr)
    pace.emplace(facts_.profile, facts_.machine, waits_of(*pace_of, facts_.profile));
  for (Decision& d : decided) d.ahead = copies;
  Candidate c{.decisions = std::move(decided), .paced = pace.has_value(), .copies = copies};
  auto rest = facts_.options;
  rest.time_limit_s = std::max(0.0, seconds_left());
  c.plan = decided_plan("auto", facts_.basis, rest, c.decisions, pace ? &*pace : nullptr).plan;
  c.verdict = facts_.options.judge(facts_.profile, facts_.machine, c.plan);
  return c;
}

// Fetches begin as early as there is room.
Candidate Search::judge_framed(std::vector<Decision> decided, ReplayWay way) const {
  for (Decision& d : decided) d.fetch = d.next;
  Candidate c{.decisions = std::move(decided), .way = way};
  c.plan = replayed_plan("auto", facts_.basis, facts_.options, c.decisions, way);
  c.verdict = facts_.options.judge(facts_.profile, facts_.machine, c.plan);
  return c;
}

Search::Judged Search::judged(const Attempt& attempt, const Candidate& before) const {
  Judged result;
  try {
    auto decided = attempt.decide();
    if (attempt.choose_tiers)
      assign_tiers(facts_.profile, facts_.storages, facts_.machine, before.verdict.op_stall_us,
                   decided);
    if (facts_.frames) {
      result.best = judge_framed(std::move(decided), attempt.way);
      return result;
    }
    result.best = judge(std::move(decided), attempt.copies, attempt.paced ? &before : nullptr);
    if (attempt.again == 0) return result;
    Candidate last = result.best;
    while (result.plans <= attempt.again) {
      ++result.plans;
      last = judge(last.decisions, last.copies || result.plans > 2, &last);
      if (last.verdict.step_us < result.best.verdict.step_us) result.best = last;
    }
  } catch (const Error& error) {
    result.refused = error.what();
  }
  return result;
}

// In the order of the attempts; what does not fit never ends.
std::vector<Candidate> Search::judge_all(std::span<const Attempt> attempts,
                                         const Candidate& before) {
  const auto begin = Clock::now();
  std::vector<Judged> results(attempts.size());
  in_parallel(attempts.size(), [&](std::size_t i) { results[i] = judged(attempts[i], before); });
  const auto plans = std::ranges::max(results, {}, &Judged::plans).plans;
  slowest_s_ = std::max(slowest_s_, seconds_since(begin) / static_cast<double>(plans));
  std::vector<Candidate> candidates;
  for (Judged& r : results) {
    judged_ += r.plans;
    if (!r.refused.empty()) reason_ = r.refused;
    candidates.push_back(std::move(r.best));
  }
  return candidates;
}

bool Search::improves(Candidate& c) {
  if (c.verdict.step_us >= best_.verdict.step_us) return false;
  best_ = std::move(c);
  return true;
}

void Search::try_all(std::vector<Attempt> attempts) {
  std::span<Attempt> rest = attempts;
  while (!rest.empty() && !finished()) {
    std::size_t n = 0;
    for (std::uint64_t left = effort_left(); n < std::min(rest.size(), kTogether) && left > 0;
         ++n) {
      rest[n].again = std::min(rest[n].again, left - 1);
      if (seconds_left() < static_cast<double>(rest[n].again) * slowest_s_) rest[n].again = 0;
      left -= 1 + rest[n].again;
    }
    auto candidates = judge_all(rest.first(n), best_);
    for (std::size_t i = 0; i < n; ++i)
      if (improves(candidates[i]) && rest[i].recipe) best_recipe_ = *rest[i].recipe;
    rest = rest.subspan(n);
  }
}

void Search::try_recipes(const std::vector<Recipe>& recipes) {
  std::vector<Attempt> attempts;
  for (const Recipe& recipe : recipes)
    attempts.push_back({.decide = [this, recipe] { return decisions(facts_, recipe); },
                        .choose_tiers = true,
                        .copies = best_.copies,
                        .way = {.keep = true, .deep = best_.way.deep},
                        .again = facts_.frames ? 0u : 1u,
                        .recipe = recipe});
  try_all(std::move(attempts));
}

// The bound's own solution, for a little less memory each time. One after the other: the solver
// measures its time limit in the time of all processors.
void Search::try_bounds() {
  for (double slack : kBoundSlacks) {
    if (finished()) return;
    const Bound bound =
        lower_bound(facts_.whole, facts_.machine,
                    {.fast_bytes = facts_.limit(slack),
                     .buckets = kBoundBuckets,
                     .faster_tiers_first = true,
                     .time_limit_s = std::min(facts_.options.time_limit_s / 5, seconds_left())});
    if (!bound.gaps.empty())
      try_all({{.decide = [&] { return rounded(facts_, bound, slack); },
                .paced = true,
                .again = facts_.may_copy() ? kBothWays : 1}});
  }
}

// The decisions that its moves are, each way.
void Search::try_start(const Plan& plan) {
  const auto ops = static_cast<std::uint32_t>(facts_.profile.ops.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, Remedy> left;  // by storage and op
  for (const Move& m : plan.moves)
    if (m.direction == Direction::demote || m.direction == Direction::discard)
      left[{facts_.basis.storage_of[m.tensor.index()], m.trigger.value}] =
          m.direction == Direction::discard ? Remedy::recompute : Remedy::swap;
  std::vector<Decision> decided;
  for (const IdleGap& gap : facts_.gaps)
    if (const auto found = left.find({gap.storage, gap.use % ops}); found != left.end()) {
      decided.push_back(facts_.swap(gap));
      decided.back().remedy = found->second;
    }
  std::vector<Attempt> attempts;
  for (const bool keep : {true, false})
    for (const bool deep : {false, true})
      attempts.push_back({.decide = [decided] { return decided; },
                          .choose_tiers = true,
                          .way = {.keep = keep, .deep = deep}});
  try_all(std::move(attempts));
}

// Prices without ends of chains, ends at the best price, prices there, slack.
void Search::try_grid() {
  std::vector<Recipe> recipes;
  for (double slack : kSlacks) {  // until one fits
    recipes.clear();
    for (double price : kPrices)
      if (price == 0 || facts_.options.recompute)
        recipes.push_back({.price = price, .slack = slack});
    try_recipes(recipes);
    if (best_.verdict.step_us < Facts::kNever) break;
  }
  if (facts_.options.recompute) {
    recipes.clear();
    for (double stride : kStrides)
      for (double price : {best_recipe_.price, 0.4, 1.0})
        recipes.push_back({.price = price, .slack = best_recipe_.slack, .stride = stride});
    try_recipes(recipes);
  }
  recipes.clear();
  for (double slack : kSlacks)
    recipes.push_back({.price = best_recipe_.price, .slack = slack, .stride = best_recipe_.stride});
  try_recipes(recipes);
}

// One number or the other, in ever smaller steps.
void Search::sharpen() {
  for (double step = 1.5; step > kFinestStep && !finished(); step = std::sqrt(step))
    for (double Recipe::*number : {&Recipe::price, &Recipe::stride, &Recipe::slack}) {
      if (best_recipe_.*number == 0) continue;
      std::vector<Recipe> recipes;
      for (double factor : {step, 1 / step}) {
        recipes.push_back(best_recipe_);
        recipes.back().*number *= factor;
      }
      try_recipes(recipes);
    }
}

// Late acceptance (Burke and Bykov, EJOR 258, 2017): what is no worse than the plan so many rounds
// ago is gone on from, so that a search leaves what is best only nearby.
void Search::refine() {
  Candidate current = best_;
  std::vector<double> before(kRounds, current.verdict.step_us);
  for (std::size_t round = 0; !finished(); ++round) {
    std::vector<Attempt> attempts;
    for (std::size_t i = 0; i < std::min<std::uint64_t>(kTogether, effort_left()); ++i)
      attempts.push_back({.decide = [decided = flip_(current)] { return decided; },
                          .paced = current.paced,
                          .copies = current.copies,
                          .way = another_way(current.way, kTogether * round + i)});
    auto candidates = judge_all(attempts, current);
    Candidate& next = *std::ranges::min_element(
        candidates, {}, [](const Candidate& c) { return c.verdict.step_us; });
    double& then = before[round % kRounds];
    if (next.verdict.step_us <= std::max(then, current.verdict.step_us)) {
      current = next;
      improves(next);
    }
    then = std::min(then, current.verdict.step_us);
  }
}

Candidate Search::run(const Plan* start) {
  if (facts_.frames && start != nullptr) try_start(*start);
  // First what is seldom bad, for those who give it little time.
  if (facts_.options.recompute) try_recipes({{.price = 0.4, .stride = 1.0 / 48}});
  if (!facts_.frames) try_bounds();
  try_grid();
  if (best_.verdict.step_us == Facts::kNever) throw Error(reason_);
  if (uses(facts_.options, kRefine)) {
    sharpen();
    refine();
  }
  return std::move(best_);
}

}  // namespace sentinel::plan
