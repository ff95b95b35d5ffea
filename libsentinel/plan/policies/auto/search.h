// The search behind the policy `auto`: plans are made, simulated, and the best is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plan/policies/auto/facts.h"
#include "plan/policies/auto/flips.h"
#include "plan/policies/auto/recipe.h"

namespace sentinel::plan {

constexpr std::string_view kRefine = "refine";  // the feature: go on from the best of the seeds

class Search {
 public:
  explicit Search(const Facts& facts) : facts_(facts), flip_(facts, facts.options.seed) {}

  // The best plan found; throws the last reason where none fits. Ends at Facts::options' effort
  // (plans judged or refused) or when its time limit is near. For one effort the same on any
  // number of processors. On frames it begins from `start`, the plan of another policy or null.
  Candidate run(const Plan* start = nullptr);
  std::uint64_t judged() const { return judged_; }

 private:
  struct Attempt {
    std::function<std::vector<Decision>()> decide;  // may run beside others; throws Error
    bool choose_tiers = false;
    bool paced = false;   // planned by the pace of the plan before
    bool copies = false;  // what leaves is copied ahead
    ReplayWay way = {};   // on frames
    // Plans after the first, each by the pace that the one before turned out to have; from the
    // second on, what leaves is copied ahead.
    std::uint64_t again = 0;
    std::optional<Recipe> recipe;  // from which the decisions follow
  };
  struct Judged {
    Candidate best;
    std::uint64_t plans = 1;
    std::string refused;  // why there is no plan
  };
  std::uint64_t effort_left() const;
  double seconds_left() const;
  bool finished() const;
  Candidate judge(std::vector<Decision>, bool copies, const Candidate* pace_of) const;
  Candidate judge_framed(std::vector<Decision>, ReplayWay) const;
  Judged judged(const Attempt&, const Candidate& before) const;
  std::vector<Candidate> judge_all(std::span<const Attempt>, const Candidate& before);
  bool improves(Candidate&);
  void try_all(std::vector<Attempt>);
  void try_recipes(const std::vector<Recipe>&);
  void try_bounds();
  void try_start(const Plan&);
  void try_grid();
  void sharpen();
  void refine();

  const Facts& facts_;
  Flips flip_;
  Clock::time_point begin_ = Clock::now();
  double slowest_s_ = 0;  // of the plans: twice that is kept back for the last ones
  std::uint64_t judged_ = 0;
  Recipe best_recipe_;
  Candidate best_;
  std::string reason_ = "no plan was tried";
};

}  // namespace sentinel::plan
