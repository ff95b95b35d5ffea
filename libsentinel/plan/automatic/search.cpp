#include "plan/automatic/search.h"

#include <array>
#include <cmath>
#include <utility>

#include "plan/automatic/rounding.h"
#include "plan/bound.h"
#include "plan/lanes.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kDefaultEffort = 1000;
constexpr std::array kPrices{0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0};
constexpr std::array kStrides{1.0 / 96, 1.0 / 48, 1.0 / 24, 1.0 / 12};
constexpr std::array kSlacks{0.0, 0.03, 0.08, 0.16, 0.3};
constexpr std::uint32_t kBoundBuckets = 100;
constexpr std::array kBoundSlacks{0.0, 0.01, 0.02, 0.035, 0.05, 0.08};
constexpr double kFinestStep = 1.04;

}  // namespace

// No plan beats the sum of the op times; otherwise time or effort is spent.
bool Search::finished() const {
  const PlanOptions& o = facts_.options;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  return passed.count() > 0.8 * o.time_limit_s ||
         judged_ >= (o.effort != 0 ? o.effort : kDefaultEffort) ||
         best_.verdict.step_us <= ideal_us(facts_.profile) * (1 + 1e-9);
}

bool Search::try_decisions(std::vector<Decision> decided, bool choose_tiers) {
  ++judged_;
  if (choose_tiers)
    assign_tiers(facts_.profile, facts_.storages, facts_.machine, best_.verdict.op_stall_us,
                 decided);
  try {
    Candidate c{
        .plan = decided_plan("auto", facts_.profile, facts_.machine, facts_.options, decided).plan};
    c.verdict = facts_.options.judge(facts_.profile, facts_.machine, c.plan);
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
  if (!try_decisions(decisions(facts_, recipe))) return false;
  best_recipe_ = recipe;
  return true;
}

void Search::try_bound(double slack) {
  const Bound bound = lower_bound(facts_.whole, facts_.machine,
                                  {.fast_bytes = facts_.limit(slack),
                                   .buckets = kBoundBuckets,
                                   .time_limit_s = facts_.options.time_limit_s / 5});
  if (!bound.gaps.empty()) try_decisions(rounded(facts_, bound, slack), false);
}

// Prices without ends of chains, ends at the best price, prices there, slack.
void Search::try_grid() {
  for (double slack : kSlacks) {  // until one fits
    for (double price : kPrices)
      if ((price == 0 || facts_.options.recompute) && !finished())
        try_recipe({.price = price, .slack = slack});
    if (best_.verdict.step_us < Facts::kNever) break;
  }
  if (facts_.options.recompute) {
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
  for (double step = 1.5; step > kFinestStep && !finished(); step = std::sqrt(step)) {
    for (double Recipe::*number : {&Recipe::price, &Recipe::stride, &Recipe::slack})
      for (double factor : {step, 1 / step}) {
        Recipe recipe = best_recipe_;
        recipe.*number *= factor;
        if (recipe.*number != best_recipe_.*number && !finished()) try_recipe(recipe);
      }
  }
}

Candidate Search::run() {
  // First what is seldom bad, for those who give it little time.
  if (facts_.options.recompute) try_recipe({.price = 0.4, .stride = 1.0 / 48});
  for (double slack : kBoundSlacks)
    if (!finished()) try_bound(slack);
  try_grid();
  if (best_.verdict.step_us == Facts::kNever) throw Error(reason_);
  if (uses(facts_.options, kRefine)) {
    sharpen();
    while (!finished()) try_decisions(flip_(best_), false);
  }
  return std::move(best_);
}

}  // namespace sentinel::plan
