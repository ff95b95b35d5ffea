// Makes a set of decisions of a recipe's numbers, with checkpoints at a stride.
#include "plan/policies/auto/recipe.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "plan/gaps/cover.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

// Where chains of replays end: in each stretch of `length` ops the border that fewest bytes cross.
// Crossing means to be used on both sides within that length.
std::vector<std::uint32_t> narrow_borders(const Facts& facts, double length) {
  const auto ops = static_cast<std::uint32_t>(facts.profile.ops.size());
  std::vector<double> bytes(ops + 1, 0);  // that cross from op k - 1 to op k
  for (const Storage& s : facts.storages)
    for (std::size_t u = 0; !s.persistent && u + 1 < s.uses.size(); ++u)
      if (s.uses[u + 1] < ops && s.uses[u + 1] - s.uses[u] <= length)
        for (std::uint32_t k = s.uses[u] + 1; k <= s.uses[u + 1]; ++k)
          bytes[k] += static_cast<double>(s.bytes);
  std::vector<std::uint32_t> borders;
  for (double first = 1; first < ops; first += length) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        bytes.begin() + static_cast<std::ptrdiff_t>(std::min<double>(first + length, ops));
    if (begin < end)
      borders.push_back(static_cast<std::uint32_t>(std::min_element(begin, end) - bytes.begin()));
  }
  return borders;
}

// Storages that cross such a border.
std::vector<bool> checkpoints(const Facts& facts, double stride) {
  const double length = stride * static_cast<double>(facts.profile.ops.size());
  std::vector<bool> result(facts.storages.size(), false);
  if (length < 1) return result;
  const auto borders = narrow_borders(facts, length);
  for (std::size_t i = 0; i < facts.storages.size(); ++i) {
    const auto& uses = facts.storages[i].uses;
    for (std::size_t u = 0; u + 1 < uses.size(); ++u) {
      const auto next = std::ranges::upper_bound(borders, uses[u]);
      if (uses[u + 1] - uses[u] <= length && next != borders.end() && *next <= uses[u + 1])
        result[i] = true;
    }
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
