// Makes a set of decisions of a recipe's numbers, with checkpoints at a stride.
#include "plan/policies/auto/recipe.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "plan/gaps/cover.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

// Storages that a forward chain needs to go on past the end of a stride: used on both sides of it
// within one stride's length.
std::vector<bool> checkpoints(const Facts& facts, double stride) {
  const double length = stride * static_cast<double>(facts.profile.ops.size());
  std::vector<bool> result(facts.storages.size(), false);
  if (length < 1) return result;
  for (std::size_t i = 0; i < facts.storages.size(); ++i) {
    const auto& uses = facts.storages[i].uses;
    for (std::size_t u = 0; u + 1 < uses.size(); ++u)
      if (uses[u + 1] - uses[u] <= length &&
          std::floor(uses[u] / length) != std::floor(uses[u + 1] / length))
        result[i] = true;
  }
  return result;
}

}  // namespace

std::vector<Decision> decisions(const Facts& facts, const Recipe& recipe) {
  const auto checkpoint = checkpoints(facts, recipe.stride);
  std::vector<double> cost;
  std::vector<Remedy> remedy;
  for (std::size_t i = 0; i < facts.gaps.size(); ++i) {
    const double swap = facts.swap_us_per_byte(facts.gaps[i]);
    const double priced = recipe.price * swap;
    const bool remake = facts.options.recompute && facts.gaps[i].needed &&
                        !checkpoint[facts.gaps[i].storage] && facts.remake_us_per_byte[i] < priced;
    remedy.push_back(remake ? Remedy::recompute : Remedy::swap);
    cost.push_back(remake ? facts.remake_us_per_byte[i] / std::max(recipe.price, 1e-9) : swap);
  }
  // With one price for all, Belady's rule moves least.
  const bool alike = !facts.options.recompute || recipe.price == 0;
  std::vector<Decision> result;
  for (std::uint32_t g : cover({.gaps = facts.gaps,
                         .held = facts.held,
                         .limit = facts.limit(recipe.slack),
                         .cost = alike ? std::span<const double>{} : cost})) {
    result.push_back(facts.swap(facts.gaps[g]));
    result.back().remedy = remedy[g];
  }
  return result;
}

}  // namespace sentinel::plan
