// SuperNeurons (Wang et al., "Superneurons: Dynamic GPU Memory Management for Training Deep Neural
// Networks", PPoPP 2018): offload what is dear to compute, recompute what is cheap.
//
// Modelled: liveness analysis (a tensor holds memory from its first to its last use); the unified
// tensor pool, which offloads the outputs of compute-intensive layers (convolution, fully
// connected, matrix products, recurrent cells, told by the op's name) and prefetches them at the
// compute-intensive layer that precedes their use in backward; its tensor cache: of these, the
// least recently used leave, and only as far as memory is short; recomputation of the outputs of
// all other layers before their use in backward, from the checkpoints that are left.
// Departures: an output that may not be replayed (plan/step/replay.h) is offloaded like a
// checkpoint; an eviction's transfer begins at the tensor's last forward use, not when room is
// short. Of the two ways to recompute a segment, only the memory-centric one: what a replay makes
// for another one is not kept. Left out: the choice of convolution algorithms by free workspace.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "base/clock.h"
#include "plan/gaps/feature_maps.h"
#include "plan/gaps/pressure.h"
#include "plan/gaps/remade.h"
#include "plan/gaps/scheduled.h"
#include "plan/step/level.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::string_view kCache = "tensor-cache";
constexpr std::array kFeatures{kCache};

// What the cache may fill, of the budget: replays need room that is known only afterwards.
constexpr std::array kShares{1.0, 0.95, 0.9, 0.8, 0.6, 0.0};

bool compute_intensive(const Op& op) {
  static constexpr std::array<std::string_view, 9> kMarks{
      "conv", "linear", "matmul", "mm", "gemm", "dense", "attention", "lstm", "gru"};
  std::string name(op.name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(
      kMarks, [&](std::string_view mark) { return name.find(mark) != std::string::npos; });
}

class SuperNeuronsPlanner {
 public:
  SuperNeuronsPlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : basis_(profile, machine, shared_layout(profile, machine, options)),
        options_(options),
        maps_(feature_maps(profile, basis_.storages)),
        intensive_before_(find_intensive()),
        level_(live()) {
    std::ranges::stable_sort(maps_, {}, &IdleGap::use);  // the least recently used first
    for (const IdleGap& map : maps_) recomputed_.push_back(recomputable(map));
    for (std::size_t i = 0; i < maps_.size(); ++i)
      if (recomputed_[i]) leave(level_, maps_[i], maps_[i].next);
  }

  Plan plan() {
    if (granules_are_shared(basis_.machine)) return scheduled();
    for (double share : kShares) {
      if (seconds_left() == 0) share = 0;
      const bool all = share == 0 || !uses(options_, kCache);
      try {
        auto rest = options_;
        rest.time_limit_s = seconds_left();
        Plan plan = decided_plan("superneurons", basis_, rest, decisions(share, all)).plan;
        give_replay_reasons(plan, basis_.profile, basis_.machine);
        return plan;
      } catch (const Error& error) {
        if (!all) continue;
        if (seconds_left() > 0 || !options_.recompute) throw;
        throw Error(fmt::format(
            "{}; its time ended before all replays were tried, more of it may help (--time-limit)",
            error.what()));
      }
    }
    throw Error("unreachable");
  }

 private:
  // The quickest of all shares, and of the same without recomputation.
  Plan scheduled() {
    std::vector<Plan> plans;
    for (double share : kShares) {
      const bool all = share == 0 || !uses(options_, kCache);
      auto decided = decisions(share, all);
      plans.push_back(scheduled_plan("superneurons", basis_, options_, decided, {.early = false}));
      if (plans.back().moves.empty() || seconds_left() == 0) break;
    }
    return quickest(basis_.profile, basis_.machine, options_, std::move(plans));
  }

  std::uint32_t ops() const { return static_cast<std::uint32_t>(basis_.profile.ops.size()); }

  double seconds_left() const {
    return std::max(0.0, options_.time_limit_s - seconds_since(begin_));
  }

  std::vector<std::uint64_t> live() const {
    if (granules_are_shared(basis_.machine)) return basis_.demand.all;
    const auto change = [&](std::vector<std::int64_t>& d, std::uint32_t first, std::uint32_t last,
                            std::uint64_t bytes) {
      d[first] += static_cast<std::int64_t>(bytes);
      d[last + 1] -= static_cast<std::int64_t>(bytes);
    };
    std::vector<std::int64_t> difference(ops() + 1, 0);
    for (const Storage& s : basis_.storages) {
      const std::uint64_t bytes = page_round(s.bytes, basis_.machine.granule_bytes);
      change(difference, s.first, std::min(s.last, ops() - 1), bytes);
      if (s.last >= ops()) change(difference, 0, s.last - ops(), bytes);
    }
    std::vector<std::uint64_t> held;
    std::int64_t sum = 0;
    for (std::uint32_t k = 0; k < ops(); ++k)
      held.push_back(static_cast<std::uint64_t>(sum += difference[k]));
    return held;
  }

  bool recomputable(const IdleGap& map) const {
    const TensorId t = basis_.storages[map.storage].tensor;
    const auto maker = basis_.replay.maker(t, OpId(map.next));
    const auto alive = [&](TensorId x) { return basis_.replay.alive(x, OpId(map.next)); };
    return options_.recompute && maker && seconds_left() > 0 &&
           !compute_intensive(basis_.profile.ops[maker->index()]) &&
           !replay_chain(basis_.profile, basis_.replay, t, OpId(map.next), alive).empty();
  }

  void leave(Level& level, const IdleGap& map, std::uint32_t until) const {
    const auto bytes =
        static_cast<std::int64_t>(granules_are_shared(basis_.machine)
                                      ? freed_bytes(basis_.footprint, basis_.storages[map.storage])
                                      : page_round(map.bytes, basis_.machine.granule_bytes));
    level.add(std::min(map.use + 1, until), until, -bytes);
  }

  // At the compute-intensive op before the one that needs it; right before that one if there is
  // none in between.
  std::uint32_t prefetch(const IdleGap& map) const {
    const std::uint32_t intensive = intensive_before_[map.next];
    return intensive > map.use ? intensive : map.next - 1;
  }

  std::vector<std::uint32_t> find_intensive() const {
    std::vector<std::uint32_t> before(ops(), 0);
    for (std::uint32_t k = 1; k < ops(); ++k)
      before[k] = compute_intensive(basis_.profile.ops[k - 1]) ? k - 1 : before[k - 1];
    return before;
  }

  std::vector<Decision> decisions(double share, bool all) const {
    const auto limit = static_cast<std::int64_t>(share * static_cast<double>(options_.fast_bytes));
    Level level = level_;
    std::vector<bool> offloaded(maps_.size(), all);
    std::size_t oldest = 0;
    for (std::uint32_t k = 0; k < ops() && !all; ++k)
      for (; level.at(k) > limit && oldest < maps_.size() && maps_[oldest].use < k; ++oldest) {
        if (recomputed_[oldest] || maps_[oldest].next <= k) continue;
        offloaded[oldest] = true;
        leave(level, maps_[oldest], std::max(prefetch(maps_[oldest]), k + 1));
      }
    std::vector<Decision> list;
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const IdleGap& map = maps_[i];
      Decision d{.storage = map.storage, .use = map.use, .next = map.next};
      if (recomputed_[i])
        d.remedy = Remedy::recompute;
      else if (offloaded[i])
        d.remedy = Remedy::swap;
      d.fetch = prefetch(map);
      if (d.remedy != Remedy::keep) list.push_back(d);
    }
    return list;
  }

  const Clock::time_point begin_ = Clock::now();
  const Basis basis_;
  const PlanOptions& options_;
  std::vector<IdleGap> maps_;                    // in the order of their last forward use
  std::vector<std::uint32_t> intensive_before_;  // per op
  std::vector<bool> recomputed_;
  Level level_;
};

class SuperNeuronsPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "superneurons"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    if (!granules_are_shared(machine) || !options.recompute)
      return SuperNeuronsPlanner(profile, machine, options).plan();
    // Replays that turn out to be no gain are left out, and what they would make is offloaded.
    PlanOptions with = options, without = options;
    with.time_limit_s = without.time_limit_s = options.time_limit_s / 2;
    without.recompute = false;
    std::vector<Plan> plans;
    for (const PlanOptions* half : {&without, &with})
      plans.push_back(SuperNeuronsPlanner(profile, machine, *half).plan());
    return quickest(profile, machine, options, std::move(plans));
  }
};

}  // namespace

std::unique_ptr<Policy> make_superneurons() { return std::make_unique<SuperNeuronsPolicy>(); }

}  // namespace sentinel::plan
