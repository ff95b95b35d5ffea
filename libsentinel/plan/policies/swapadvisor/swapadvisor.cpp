// SwapAdvisor (Huang, Jin and Li, "SwapAdvisor: Pushing Deep Learning Beyond the GPU Memory Limit
// via Smart Swapping", ASPLOS 2020): a genetic search over memory allocation; what is swapped
// follows from it.
//
// Modelled: fast memory as pools of equal slots, a pool a size class; an individual is a map from
// tensor sizes to classes and the number of slots of each; its swap plan puts out the tensor of the
// farthest next use whenever an op finds its pool full, weights included, and fetches ahead; its
// fitness is the step time that a cost model gives for that plan. Selection by softmax of fitness,
// one-point crossover, mutation, the best one kept.
// Left out: the search over operator schedules, since a trace's ops come in the order in which they
// ran; fragmentation, since every tensor's slot is as large as its class. Slots bound what is held,
// so that a plan fits by its bytes as well. Where no map of sizes to classes leaves each op its
// slots, the method fails.
#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/in_parallel.h"
#include "base/units.h"
#include "plan/gaps/feature_maps.h"
#include "plan/policies/swapadvisor/pools.h"
#include "plan/search/cost_run.h"
#include "plan/search/search.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kIndividuals = 64;
constexpr std::uint64_t kGenerations = 200;
constexpr std::uint64_t kPatience = 40;  // generations without a gain
constexpr double kMutation = 0.05;       // per gene
constexpr double kSharpness = 20;        // of selection: weight exp(-kSharpness * time / best)
constexpr double kLead = 2;              // a fetch begins so many transfer times ahead

struct Individual {
  std::vector<std::uint8_t> border;  // per distinct size: the largest of its class
  std::vector<float> share;          // per distinct size: of the slots left over, if a border
  Cost cost{UINT64_MAX, 0};          // excess: bytes that the smallest pools lack
};

class SwapSearch {
 public:
  SwapSearch(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        options_(options),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(0.9 * options.time_limit_s))),
        storages_(storages(profile)),
        gaps_(idle_gaps(profile, storages_, machine)),
        replay_(profile, storages_, gaps_, machine.granule_bytes),
        model_(cost_input(machine)),
        runs_([this] { return CostRun(model_); }) {}

  std::uint64_t peak() const {
    return static_cast<std::uint64_t>(*std::ranges::max_element(model_.held()));
  }

  // The best individual; cost.excess > 0 where none fits.
  const Individual& run() {
    begin();
    for (std::uint64_t stale = 0; done_ < limit() && stale < kPatience; ++stale) {
      const bool whole = evaluate();
      const auto best = std::ranges::min_element(population_, {}, &Individual::cost);
      if (best->cost < best_.cost) best_ = *best, stale = 0;
      if (!whole) break;
      ++done_;
      breed();
    }
    return best_;
  }

  std::uint64_t generations() const { return done_; }

  std::vector<Decision> decisions(const Individual& individual) const {
    const auto out = replay_.evictions(pools(individual));
    std::vector<Decision> list;
    for (std::uint32_t g = 0, item = 0; g < gaps_.size(); ++g) {
      const IdleGap& gap = gaps_[g];
      const std::uint32_t fetch = gap.needed ? model_.item(item++).in : gap.next;
      if (out[g])
        list.push_back({.storage = gap.storage,
                        .use = gap.use,
                        .next = gap.next,
                        .remedy = Remedy::swap,
                        .fetch = fetch});
    }
    return list;
  }

 private:
  std::uint64_t limit() const { return options_.effort > 0 ? options_.effort : kGenerations; }

  // Room is the pools' business, not the model's.
  CostInput cost_input(const Machine& machine) const {
    CostInput in{.profile = profile_,
                 .machine = machine,
                 .storages = storages_,
                 .gaps = {},
                 .limit = options_.fast_bytes,
                 .lead = kLead,
                 .recompute = false};
    for (const IdleGap& gap : gaps_)
      if (gap.needed) in.gaps.push_back(gap);
    return in;
  }

  std::size_t sizes() const { return replay_.sizes().size(); }

  // Classes by growing ratio of their sizes, then any.
  void begin() {
    population_.resize(kIndividuals);
    for (std::uint32_t i = 0; i < kIndividuals; ++i) {
      Random random(options_.seed, i);
      Individual& one = population_[i];
      const double ratio = std::pow(1.15, i);  // 1: a class a size
      for (std::size_t s = 0; s < sizes(); ++s) {
        const bool border = i < kIndividuals / 2 ? s + 1 == sizes() || starts_class(s + 1, ratio)
                                                 : random.share() < 1.0 / (1 + i % 16);
        one.border.push_back(border);
        one.share.push_back(i < kIndividuals / 2 ? 1 : static_cast<float>(random.share()));
      }
      one.border.back() = true;
    }
    best_ = population_.front();
  }

  // From the largest size down, a class holds sizes within `ratio` of its largest.
  bool starts_class(std::size_t next, double ratio) const {
    const auto bucket = [&](std::size_t s) {
      const double below = std::log(static_cast<double>(replay_.sizes().back()) /
                                    static_cast<double>(replay_.sizes()[s]));
      return ratio <= 1 ? static_cast<double>(s) : std::floor(below / std::log(ratio));
    };
    return bucket(next - 1) != bucket(next);
  }

  Pools classes(const Individual& one) const {
    Pools pools;
    for (std::size_t s = 0; s < sizes(); ++s) {
      pools.of_size.push_back(static_cast<std::uint32_t>(pools.bytes.size()));
      if (one.border[s]) pools.bytes.push_back(replay_.sizes()[s]);
    }
    return pools;
  }

  static std::uint64_t total(const Pools& pools) {
    std::uint64_t sum = 0;
    for (std::size_t c = 0; c < pools.bytes.size(); ++c) sum += pools.slots[c] * pools.bytes[c];
    return sum;
  }

  // What each op needs at once, and of what is left over, by share, no more than is ever alive.
  Pools pools(const Individual& one) const {
    Pools pools = classes(one);
    pools.slots = replay_.used(pools);
    if (total(pools) > options_.fast_bytes) return pools;
    const auto alive = replay_.alive(pools);
    std::vector<double> share;
    for (std::size_t s = 0; s < sizes(); ++s)
      if (one.border[s]) share.push_back(one.share[s]);
    for (int round = 0; round < 3; ++round) give(pools, alive, share, round == 2);
    return pools;
  }

  void give(Pools& pools, const std::vector<std::uint32_t>& alive, const std::vector<double>& share,
            bool all) const {
    double wanted = 0;
    std::uint64_t left = options_.fast_bytes - total(pools);
    const double spare = static_cast<double>(left);
    for (std::size_t c = 0; c < share.size(); ++c)
      if (pools.slots[c] < alive[c])
        wanted += share[c] * static_cast<double>((alive[c] - pools.slots[c]) * pools.bytes[c]);
    for (std::size_t c = share.size(); c-- > 0;) {
      const std::uint64_t most = std::min<std::uint64_t>(
          alive[c] - std::min(pools.slots[c], alive[c]), left / pools.bytes[c]);
      const double part = wanted > 0 ? std::min(1.0, share[c] * spare / wanted) : 1;
      const auto slots = static_cast<std::uint64_t>(
          part * static_cast<double>(alive[c] - std::min(pools.slots[c], alive[c])));
      const std::uint64_t taken = all ? most : std::min(most, slots);
      pools.slots[c] += static_cast<std::uint32_t>(taken);
      left -= taken * pools.bytes[c];
    }
  }

  // Past the deadline only the first individual, which is the best one so far.
  bool evaluate() {
    std::atomic<bool> cut = false;
    for (Individual& one : population_) one.cost = Individual{}.cost;
    in_parallel(kIndividuals, [&](std::size_t i) {
      if (Clock::now() >= deadline_) cut = true;
      if (!cut || i == 0) population_[i].cost = cost(population_[i]);
    });
    return !cut;
  }

  Cost cost(const Individual& one) {
    const Pools allotted = pools(one);
    if (const std::uint64_t sum = total(allotted); sum > options_.fast_bytes)
      return {sum - options_.fast_bytes, 0};
    const auto out = replay_.evictions(allotted);
    std::vector<Remedy> choices;
    for (std::uint32_t g = 0; g < gaps_.size(); ++g)
      if (gaps_[g].needed) choices.push_back(out[g] ? Remedy::swap : Remedy::keep);
    return {0, runs_.local().evaluate(choices).ticks};
  }

  void breed() {
    std::vector<double> weight;
    for (const Individual& one : population_) {
      const double slower =
          one.cost.excess != best_.cost.excess
              ? 1.0
              : static_cast<double>(one.cost.ticks - best_.cost.ticks) /
                    static_cast<double>(std::max<std::int64_t>(best_.cost.ticks, 1));
      weight.push_back(std::exp(-kSharpness * slower));
    }
    std::partial_sum(weight.begin(), weight.end(), weight.begin());
    std::vector<Individual> next{best_};
    Random random(options_.seed, kIndividuals + done_);
    const auto parent = [&]() -> const Individual& {
      const auto at = std::ranges::lower_bound(weight, random.share() * weight.back());
      return population_[static_cast<std::size_t>(
          std::min<std::ptrdiff_t>(at - weight.begin(), kIndividuals - 1))];
    };
    while (next.size() < kIndividuals) {
      const Individual &a = parent(), &b = parent();
      next.push_back(child(a, b, random));
    }
    population_ = std::move(next);
  }

  Individual child(const Individual& a, const Individual& b, Random& random) const {
    Individual one = a;
    const std::size_t cut = random.below(sizes() + 1), share_cut = random.below(sizes() + 1);
    std::copy(b.border.begin() + static_cast<std::ptrdiff_t>(cut), b.border.end(),
              one.border.begin() + static_cast<std::ptrdiff_t>(cut));
    std::copy(b.share.begin() + static_cast<std::ptrdiff_t>(share_cut), b.share.end(),
              one.share.begin() + static_cast<std::ptrdiff_t>(share_cut));
    for (std::size_t s = 0; s < sizes(); ++s) {
      if (random.share() < kMutation) one.border[s] = !one.border[s];
      if (random.share() < kMutation) one.share[s] = static_cast<float>(random.share());
    }
    one.border.back() = true;
    return one;
  }

  const Profile& profile_;
  const PlanOptions& options_;
  Clock::time_point deadline_;
  std::vector<Storage> storages_;
  std::vector<IdleGap> gaps_;
  PoolReplay replay_;
  CostModel model_;
  tbb::enumerable_thread_specific<CostRun> runs_;
  std::vector<Individual> population_;
  Individual best_;
  std::uint64_t done_ = 0;
};

[[noreturn]] void refuse_pools(const Profile& profile, const PlanOptions& options,
                               std::uint64_t lacking) {
  const auto sets = working_set_bytes(profile);
  const auto largest = std::ranges::max_element(sets);
  const auto op = static_cast<std::size_t>(largest - sets.begin());
  throw Error(
      fmt::format("SwapAdvisor cannot train in {}: pools that hold what each op uses at "
                  "once need {} more; op {} ({}) alone uses {}",
                  print_bytes(options.fast_bytes), print_bytes(lacking), op, profile.ops[op].name,
                  print_bytes(*largest)));
}

class SwapAdvisorPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "swapadvisor"; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    Plan plan;
    in_quiet_thread([&] {
      SwapSearch search(profile, machine, options);
      if (search.peak() <= options.fast_bytes) {
        plan = decided_plan(name(), profile, machine, options, {}).plan;
        return;
      }
      const Individual& best = search.run();
      if (best.cost.excess > 0) refuse_pools(profile, options, best.cost.excess);
      plan = decided_plan(name(), profile, machine, options, search.decisions(best)).plan;
      plan.effort = search.generations();
      plan.predicted_step_us = best.cost.us();
    });
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_swapadvisor() { return std::make_unique<SwapAdvisorPolicy>(); }

}  // namespace sentinel::plan
