// The search behind the policy `auto`: plans are made, simulated, and the best is kept.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/automatic/facts.h"
#include "plan/automatic/flips.h"
#include "plan/automatic/recipe.h"

namespace sentinel::plan {

constexpr std::string_view kRefine = "refine";  // the feature: go on from the best of the grid

class Search {
 public:
  explicit Search(const Facts& facts) : facts_(facts), flip_(facts, facts.options.seed) {}

  // The best plan found; throws the last reason where none fits. Ends at Facts::options' effort
  // (plans judged) or at four fifths of its time limit.
  Candidate run();
  std::uint64_t judged() const { return judged_; }

 private:
  bool finished() const;
  void try_bound(double slack);
  bool try_recipe(const Recipe&);
  void try_grid();
  void sharpen();
  bool try_decisions(std::vector<Decision>, bool choose_tiers = true);

  const Facts& facts_;
  Flips flip_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t judged_ = 0;
  Recipe best_recipe_;
  Candidate best_;
  std::string reason_ = "no plan was tried";
};

}  // namespace sentinel::plan
