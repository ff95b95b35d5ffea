// Capuchin (Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning", ASPLOS
// 2020).
//
// Modelled: the accesses of one iteration as they were measured; candidates are tensors idle
// between two of them where more is held than there is; the free time of a swap, from the end of
// its way out to the beginning of its way in; first what has free time left, the most first; then,
// of what costs time in any case, the most memory saved per second (MSPS), swapped or recomputed,
// whichever is cheaper, and valued anew as what a recomputation starts from is given up. A swap
// begins at the access before the gap; its way back begins in time behind those that share the
// link, and a twentieth of its length earlier for each time that its access was seen to wait. What
// then does not fit is swapped on demand, as in the paper's passive mode. It stops where the budget
// holds, and nothing moves over the step's end.
//
// Left out: the graph-agnostic mechanics (lineage is read off the profile), the measured iteration
// itself, and how TensorFlow's allocator fragments.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>

#include "base/clock.h"
#include "plan/gaps/absence.h"
#include "plan/gaps/channel.h"
#include "plan/gaps/decisions.h"
#include "plan/gaps/remade.h"
#include "plan/gaps/scheduled.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::string_view kRecompute = "recompute";
constexpr std::string_view kFeedback = "feedback";
constexpr std::array kFeatures{kRecompute, kFeedback};

constexpr double kEarlier = 0.05;  // of a swap's length, for each time that it came late
constexpr double kRoundingUs = 1e-6;
constexpr std::uint64_t kFeedbacks = 8;  // iterations watched, unless the effort says otherwise

class Capuchin {
 public:
  Capuchin(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        layout_(shared_layout(profile, machine, options)),
        absences_(profile, machine, layout_),
        replay_(profile),
        remedy_(absences_.gaps().size(), Remedy::keep),
        on_demand_(absences_.gaps().size(), false),
        lead_us_(absences_.gaps().size(), 0),
        of_(profile.tensors.size(), UINT32_MAX),
        given_up_(absences_.storages().size(), false),
        source_(absences_.storages().size(), false),
        time_(1, 0) {
    for (const Op& op : profile.ops) time_.push_back(time_.back() + op.us);
    const std::vector<tensile::Channel::Job> step{{.step_us = time_.back()}};
    out_lane_.emplace(step);
    in_lane_.emplace(step);
    const auto& storages = absences_.storages();
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
      of_[storages[i].tensor.index()] = i;
      if (storages[i].carried) of_[storages[i].carried->index()] = i;
    }
  }

  void decide(bool recompute) {
    choose(recompute);
    std::vector<bool> closed(absences_.gaps().size(), false);
    for (std::uint32_t g = 0; g < closed.size(); ++g)
      closed[g] = absences_.bytes(g) == 0 || remedy_[g] == Remedy::recompute;
    for (std::uint32_t g : give_way(absences_, options_.fast_bytes, closed)) {
      remedy_[g] = Remedy::swap;
      on_demand_[g] = true;
    }
    for (std::uint32_t g = 0; g < closed.size(); ++g)
      if (remedy_[g] == Remedy::swap && !absences_.away(g)) remedy_[g] = Remedy::keep;
  }

  Plan plan() const {
    if (granules_are_shared(machine_))
      return scheduled_plan("capuchin", Basis(profile_, machine_, layout_), options_, decisions(),
                            {.early = false});
    Plan plan = decided_plan("capuchin", profile_, machine_, options_, decisions()).plan;
    give_replay_reasons(plan, profile_, machine_);
    return plan;
  }

  // Brings back earlier what the simulated iteration waited for. False: it waited for nothing.
  bool learn(const Verdict& seen) {
    bool late = false;
    for (std::uint32_t g = 0; g < remedy_.size(); ++g) {
      const std::uint32_t next = absences_.gaps()[g].next % absences_.ops();
      if (remedy_[g] != Remedy::swap || on_demand_[g] || seen.op_stall_us[next] <= kRoundingUs)
        continue;
      lead_us_[g] += kEarlier * in_us(g);
      late = true;
    }
    return late;
  }

  bool out_of_time() const { return seconds_since(begin_) > options_.time_limit_s; }

 private:
  struct Candidate {
    std::uint32_t gap;
    double free_us;
  };
  struct Cost {
    double us = std::numeric_limits<double>::infinity();
    Remedy remedy = Remedy::swap;
  };

  double begin(std::uint32_t p) const {
    return time_[p % absences_.ops()] + p / absences_.ops() * time_.back();
  }
  double in_us(std::uint32_t g) const {
    return machine_.tiers[1].latency_us +
           static_cast<double>(absences_.gaps()[g].bytes) / rate(machine_, 1, 0);
  }
  double out_us(std::uint32_t g) const {
    return machine_.tiers[1].latency_us +
           static_cast<double>(absences_.gaps()[g].bytes) / rate(machine_, 0, 1);
  }
  double free_us(std::uint32_t g) const {
    const IdleGap& gap = absences_.gaps()[g];
    return (begin(gap.next) - in_us(g)) - (begin(gap.use + 1) + out_us(g));
  }

  bool helps(std::uint32_t g) const {
    const IdleGap& gap = absences_.gaps()[g];
    return absences_.over(gap.use + 1, gap.next, options_.fast_bytes);
  }

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> all;
    for (std::uint32_t g = 0; g < absences_.gaps().size(); ++g)
      if (absences_.gaps()[g].next < absences_.ops() && absences_.bytes(g) > 0 && helps(g))
        all.push_back({g, free_us(g)});
    return all;
  }

  void choose(bool recompute) {
    auto rest = candidates();
    std::ranges::stable_sort(rest, std::greater{}, &Candidate::free_us);
    std::vector<std::uint32_t> costly;
    for (const Candidate& c : rest) {
      if (!absences_.gaps()[c.gap].needed)
        take(c.gap, Remedy::swap);  // nobody reads it: for nothing
      else if (helps(c.gap) && c.free_us >= 0 && finds_lanes(c.gap))
        take(c.gap, Remedy::swap);
      else
        costly.push_back(c.gap);
    }
    if (absences_.peak() > options_.fast_bytes) choose_costly(costly, recompute);
  }

  // Behind and before the swaps chosen so far, each way being used by one at a time.
  bool finds_lanes(std::uint32_t g) {
    const IdleGap& gap = absences_.gaps()[g];
    const double until = begin(gap.next);
    const auto leaves = out_lane_->earliest(0, begin(gap.use + 1), until - in_us(g), out_us(g));
    if (!leaves) return false;
    const auto comes = in_lane_->latest(0, *leaves + out_us(g), until, in_us(g));
    if (!comes) return false;
    out_lane_->book(0, *leaves, out_us(g));
    in_lane_->book(0, *comes, in_us(g));
    return true;
  }

  // By value as it was first; one that has lost value since goes back to its new place.
  void choose_costly(const std::vector<std::uint32_t>& gaps, bool recompute) {
    std::vector<std::pair<double, std::uint32_t>> heap;  // by value, then the lowest gap
    const auto push = [&](std::uint32_t g) {
      const double us = cost(g, recompute).us;
      heap.emplace_back(us > 0 ? static_cast<double>(absences_.bytes(g)) / us
                               : std::numeric_limits<double>::max(),
                        UINT32_MAX - g);
      std::ranges::push_heap(heap);
    };
    for (std::uint32_t g : gaps) push(g);
    while (!heap.empty() && absences_.peak() > options_.fast_bytes && !out_of_time()) {
      std::ranges::pop_heap(heap);
      const auto [value, inverse] = heap.back();
      heap.pop_back();
      const std::uint32_t g = UINT32_MAX - inverse;
      if (!helps(g)) continue;
      const Cost now = cost(g, recompute);
      if (static_cast<double>(absences_.bytes(g)) < 0.999 * value * now.us)
        push(g);
      else
        take(g, now.remedy);
    }
  }

  Cost cost(std::uint32_t g, bool recompute) const {
    Cost best{.us = std::max(-free_us(g), in_us(g))};  // with the lanes full its way back shows
    if (!recompute || out_of_time() || absences_.storage_of(g).persistent ||
        source_[absences_.gaps()[g].storage])
      return best;
    const auto replays = chain(g);
    double us = 0;
    for (const Recompute& r : replays) us += profile_.ops[r.op.index()].us;
    us += remaking_us(machine_, static_cast<double>(absences_.gaps()[g].bytes));
    if (!replays.empty() && us < best.us) best = {us, Remedy::recompute};
    return best;
  }

  std::vector<Recompute> chain(std::uint32_t g) const {
    const IdleGap& gap = absences_.gaps()[g];
    const auto available = [&](TensorId t) {
      const std::uint32_t i = of_[t.index()];
      if (i == UINT32_MAX) return true;
      const Storage& s = absences_.storages()[i];
      return i != gap.storage && !given_up_[i] &&
             (s.persistent || (s.first <= gap.next && s.last >= gap.next));
    };
    return replay_chain(profile_, replay_, absences_.storage_of(g).at(gap.next, absences_.ops()),
                        OpId(gap.next), available);
  }

  void take(std::uint32_t g, Remedy remedy) {
    const IdleGap& gap = absences_.gaps()[g];
    remedy_[g] = remedy;
    absences_.leave(g, gap.use + 1, gap.next);
    if (remedy != Remedy::recompute) return;
    given_up_[gap.storage] = true;
    const auto replays = chain(g);
    absences_.hold_more(gap.next, replay_bytes(profile_, replays, machine_.granule_bytes));
    for (const Recompute& r : replays) {
      const auto& in = profile_.ops[r.op.index()].in;
      absences_.need_back(in, gap.next);
      for (TensorId t : in)
        if (of_[t.index()] != UINT32_MAX) source_[of_[t.index()]] = true;
    }
  }

  // The ways back one behind the other, each as late as it can be: the last one needed first.
  std::vector<Decision> decisions() const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t g = 0; g < remedy_.size(); ++g)
      if (remedy_[g] != Remedy::keep) order.push_back(g);
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::uint32_t g) { return absences_.gaps()[g].next; });
    double free_until = std::numeric_limits<double>::max();
    std::vector<Decision> all;
    for (std::uint32_t g : order) {
      const IdleGap& gap = absences_.gaps()[g];
      Decision d{.storage = gap.storage,
                 .use = gap.use,
                 .next = gap.next,
                 .remedy = remedy_[g],
                 .fetch = gap.next};
      if (remedy_[g] == Remedy::swap && !on_demand_[g] && gap.needed) {
        const double starts = std::min(begin(gap.next), free_until) - in_us(g);
        free_until = std::max(starts, begin(gap.use + 1));
        d.fetch = access_before(free_until - lead_us_[g], gap);
      }
      all.push_back(d);
    }
    return all;
  }

  // In-triggers are accesses: the last op that begins early enough.
  std::uint32_t access_before(double at, const IdleGap& gap) const {
    const auto next = std::ranges::upper_bound(time_, at);
    const auto op =
        next == time_.begin() ? 0u : static_cast<std::uint32_t>(next - time_.begin() - 1);
    return std::clamp(op, gap.use + 1, gap.next);
  }

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  Layout layout_;
  Absences absences_;
  Replay replay_;
  std::vector<Remedy> remedy_;     // per gap
  std::vector<bool> on_demand_;    // per gap
  std::vector<double> lead_us_;    // per gap: learnt
  std::vector<std::uint32_t> of_;  // per tensor, its storage
  std::vector<bool> given_up_;     // per storage: recomputed
  std::vector<bool> source_;       // per storage: of a recomputation
  std::vector<double> time_;
  std::optional<tensile::Channel> out_lane_, in_lane_;
  Clock::time_point begin_ = Clock::now();
};

class CapuchinPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "capuchin"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    if (machine.tiers.size() < 2) throw Error("the machine has no slower tier to plan for");
    const bool recompute = options.recompute && uses(options, kRecompute);
    const auto begin = Clock::now();
    if (granules_are_shared(machine)) return either(profile, machine, options, recompute);
    try {
      return watched(profile, machine, options, recompute);
    } catch (const Error&) {
      // What recomputations start from has to stay: on demand alone there is more room.
      if (!recompute) throw;
      auto rest = options;
      rest.time_limit_s -= seconds_since(begin);
      return watched(profile, machine, rest, false);
    }
  }

 private:
  // Replays that turn out to be no gain are left out.
  Plan either(const Profile& profile, const Machine& machine, const PlanOptions& options,
              bool recompute) const {
    auto half = options;
    if (recompute) half.time_limit_s /= 2;
    std::vector<Plan> plans{watched(profile, machine, half, false)};
    if (recompute) plans.push_back(watched(profile, machine, half, true));
    return quickest(profile, machine, options, std::move(plans));
  }

  // Iterations that are run and corrected, the best of them.
  Plan watched(const Profile& profile, const Machine& machine, const PlanOptions& options,
               bool recompute) const {
    Capuchin capuchin(profile, machine, options);
    capuchin.decide(recompute);
    Plan best = capuchin.plan();
    best.effort = 1;
    if (!options.judge || !uses(options, kFeedback) || best.moves.empty()) return best;
    Verdict seen = options.judge(profile, machine, best);
    best.predicted_step_us = seen.step_us;
    const std::uint64_t most = options.effort > 0 ? options.effort : kFeedbacks;
    for (std::uint64_t i = 1; i < most && !capuchin.out_of_time() && capuchin.learn(seen); ++i) {
      Plan plan = capuchin.plan();
      seen = options.judge(profile, machine, plan);
      plan.predicted_step_us = seen.step_us;
      plan.effort = i + 1;
      if (seen.step_us < best.predicted_step_us) best = std::move(plan);
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<Policy> make_capuchin() { return std::make_unique<CapuchinPolicy>(); }

}  // namespace sentinel::plan
