// AutoTM: M. Hildebrand, J. Khan, S. Trika, J. Lowe-Power, V. Akella, "AutoTM: Automatic Tensor
// Movement in Heterogeneous Memory Systems using Integer Linear Programming", ASPLOS 2020.
//
// Modelled: its synchronous formulation. Per tensor and use, whether the tensor is in fast memory
// then and whether it is kept there until the next use; the objective is the time of all ops, which
// grows by what uses in the slower tier cost, and of all movements, which run between ops and hide
// behind nothing; a tensor is written out once after each time it was changed; fast memory holds
// what is used and kept at every op. Solved by CBC to one per cent. Where ops cannot use the slower
// tier, everything used has to be in fast memory and only what is kept is chosen; moves then start
// an op ahead where there is room, for its asynchronous formulation.
// Left out: static profiling (times and costs are those that the simulator goes by, kinder than
// measurements of single kernels), and the re-solving against fragmentation. A write that nothing
// waits for hides behind the next op here, which is kinder too.
//
// Bounded: a program of at most kMostBinaries binaries, for the largest tensors, and kMostRows rows
// of capacity, at the fullest ops; what that leaves out is decided greedily, and so is everything
// where the search found nothing in its limits (autotm/model.h).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/policies/autotm/model.h"
#include "plan/schedule/emit.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

class AutoTmPlanner {
 public:
  AutoTmPlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        ops_(static_cast<std::uint32_t>(profile.ops.size())),
        model_(profile, machine, options) {}

  Plan run() {
    Plan plan{.policy = "autotm",
              .machine = machine_.name,
              .model = profile_.meta.model,
              .profile_signature = profile_.meta.signature,
              .fast_bytes = options_.fast_bytes,
              .granule_bytes = machine_.granule_bytes,
              .predicted_step_us = ideal_us(profile_)};
    plan.peak_fast_bytes = model_.peak_if_all_kept();
    if (plan.peak_fast_bytes <= options_.fast_bytes) return plan;
    model_.refuse_what_cannot_fit();
    plan.effort = model_.solve();
    plan.predicted_step_us += model_.cost_us();
    for (std::uint32_t i = 0; i < model_.storages().size(); ++i) add_storage(plan, i);
    order(plan);
    sort_in_place(plan);
    plan.peak_fast_bytes = model_.peak();
    return plan;
  }

 private:
  void add_storage(Plan& plan, std::uint32_t i) {
    const Storage& s = model_.storages()[i];
    const auto& uses = model_.uses(i);
    for (std::size_t u = 0; u < uses.size(); ++u)
      if (!uses[u].fast) plan.in_place.push_back({s.at(s.uses[u], ops_), OpId(s.uses[u] % ops_)});
    const bool first_slow = uses.empty() ? model_.in_place() : !uses.front().fast;
    const bool always_slow = std::ranges::none_of(uses, &AutoTmUse::fast);
    if (s.persistent ? always_slow && model_.in_place() : first_slow)
      plan.births.push_back({s.tensor, 1});
    if (uses.empty() && !model_.in_place())  // never used: it leaves for good
      plan.moves.push_back(
          {.tensor = s.tensor, .direction = Direction::demote, .reason = "never used"});
    for (std::size_t u = 0; u < uses.size(); ++u) add_moves(plan, i, u);
  }

  // Of the gap after use u: out where that use was fast and the gap is not kept, in where the next
  // one is fast.
  void add_moves(Plan& plan, std::uint32_t i, std::size_t u) {
    const Storage& s = model_.storages()[i];
    const auto& uses = model_.uses(i);
    const bool last = u + 1 == uses.size();
    if (uses[u].kept || (last && !s.persistent)) return;
    const std::uint32_t use = s.uses[u];
    const std::uint32_t next = last ? s.uses.front() + ops_ : s.uses[u + 1];
    const bool back = uses[last ? 0 : u + 1].fast;
    if (uses[u].fast) {
      const std::uint32_t until = next > use + 1 && model_.hold(i, use + 1) ? use + 1 : use;
      plan.moves.push_back({.tensor = s.at(use, ops_),
                            .direction = Direction::demote,
                            .trigger = OpId(use % ops_),
                            .deadline = OpId(until % ops_),
                            .reason = "chosen by the integer program"});
    }
    if (!back) return;
    const bool ahead = !model_.in_place() && next > use + 2 && model_.hold(i, next - 1);
    const std::uint32_t in = ahead ? next - 1 : next;
    plan.moves.push_back({.tensor = s.at(in, ops_),
                          .direction = Direction::promote,
                          .trigger = OpId(in % ops_),
                          .deadline = OpId(next % ops_),
                          .reason = "chosen by the integer program"});
  }

  static void order(Plan& plan) {
    std::ranges::stable_sort(plan.moves, {}, [](const Move& m) {
      return std::pair(m.trigger, m.direction == Direction::promote);
    });
  }

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::uint32_t ops_;
  AutoTmModel model_;
};

class AutoTmPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "autotm"; }
  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    if (machine.tiers.size() < 2)
      throw Error(fmt::format("machine {} has no slower tier to plan for", machine.name));
    return AutoTmPlanner(profile, machine, options).run();
  }
};

}  // namespace

std::unique_ptr<Policy> make_autotm() { return std::make_unique<AutoTmPolicy>(); }

}  // namespace sentinel::plan
