// Measures the machine, runs the policy on a profile, and checks what it made.
#include "runtime/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/host/limits.h"
#include "measure/measure.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "runtime/limit/planning_progress.h"
#include "runtime/limit/workable.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "sim/simulator.h"
#include "trace/read_any.h"

namespace sentinel {
namespace {

// Kernels to predict: what is predicted is not evicted, so what they use has to leave half of the
// budget. DeepUM's 32 where steps are long (its Figure 11).
std::uint32_t look_ahead(const Profile& profile, std::uint64_t fast_bytes) {
  constexpr double kMost = 32;
  double bytes = 0;
  for (const auto& op : profile.ops)
    for (const auto* list : {&op.in, &op.out})
      for (const auto id : *list)
        if (const auto& tensor = profile.tensors[id.index()]; !tensor.foreign)
          bytes += static_cast<double>(tensor.bytes);
  const double room = static_cast<double>(fast_bytes) / 2;
  const double fit = bytes > 0 ? room / bytes * static_cast<double>(profile.ops.size()) : kMost;
  return static_cast<std::uint32_t>(std::clamp(fit, 1.0, kMost));
}

}  // namespace

Planner::Planner(const SessionOptions& options, const Engine& engine, const FastLimit& limit,
                 const Voice& voice)
    : options_(options), engine_(engine), limit_(limit), voice_(voice) {}

std::pair<Profile, Plan> Planner::stored_plan() const {
  auto plan = plan::read_plan(options_.plan);
  auto profile = read_any(plan.profile_path);
  return {std::move(profile), std::move(plan)};
}

Profile Planner::stored_profile() const { return read_any(options_.profile); }

void Planner::describe_machine() {
  if (machine_.tiers.empty()) machine_ = machine();
}

// `sentinel run` has measured the machine beforehand; a program that was started without it
// measures it now.
Machine Planner::machine() const {
  const auto local = local_machine(options_);
  const bool measured = !options_.machine.empty() || sim::has_local_machine(local);
  auto machine = measured ? sim::find_machine(options_.machine.empty() ? local : options_.machine)
                          : measure_machine(options_);
  put_drive_below(machine, options_);
  machine.granule_bytes = engine_.granule();  // whatever the description says
  machine.exclusive = true;                   // a plan counts on no copy of what comes
  return machine;
}

// Others use the drive, too. What is left of its time is a drive that is slower by as much.
Machine Planner::shared_machine() const {
  auto machine = machine_;
  const auto part = limit_.drive();
  auto& drive = machine.tiers.back();
  drive.read_bw *= part, drive.write_bw *= part;
  for (auto& link : machine.links)
    if (std::ranges::count(link.tiers, drive.name) != 0) link.bw *= part;
  return machine;
}

Planner::Outcome Planner::decide(const Profile& profile) {
  describe_machine();
  const PlanningProgress progress(
      [this](const std::string& text) { voice_.say(text); },
      fmt::format("{} ops and {} tensors", profile.ops.size(), profile.tensors.size()), {});
  auto policy = make_policy(options_.policy);
  if (auto* paged = dynamic_cast<PagedPolicy*>(policy.get())) return page(*paged, profile);
  auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
  settings_forbade_ = can_replay() && !can_replay_now();
  const auto machine = shared_machine();
  const PlanOptions plan_options{.fast_bytes = limit_.for_plan(profile),
                                 .pool_frames = static_cast<std::uint32_t>(options_.moves.depth),
                                 .threads = thread_count(),
                                 .recompute = can_replay_now() && options_.moves.recompute,
                                 .judge = sim::judge(),
                                 .parts = false,   // the engine moves whole tensors,
                                 .copies = false,  // written when they leave
                                 // Over a file; else Case 3 is tried in real steps.
                                 .in_place = options_.tiers.three()};
  require_workable(plan_options.fast_bytes, options_, profile, machine, planned);
  auto plan = Planner::planned(planned, profile, machine, plan_options);
  std::optional<Plan> rival;
  const bool steps_tell = engine_.guarded() && !limit_.shared();
  if (options_.better_policy && plan_options.recompute)
    if (auto shorter = better(plan, profile, machine, plan_options, steps_tell))
      rival = std::exchange(plan, *std::move(shorter));
  if (!steps_tell) rival.reset();
  require_valid(plan, profile);
  const auto bytes = plan.fast_bytes;
  return {.plan = std::move(plan), .rival = std::move(rival), .pager = {}, .fast_bytes = bytes};
}

Plan Planner::planned(PlannedPolicy& policy, const Profile& profile, const Machine& machine,
                      const PlanOptions& options) {
  auto plan = policy.plan(profile, machine, options);
  if (plan.moves.empty()) return plan;
  const auto verdict = options.judge(profile, machine, plan);
  plan.predicted_step_us = verdict.step_us;  // a policy's own cost model is coarser
  plan.predicted_in_bytes = verdict.in_bytes;
  plan.predicted_out_bytes = verdict.out_bytes;
  return plan;
}

// A search takes no longer than fifty steps wait under the plan that it would replace. A gain of
// less than a twentieth is within what the simulator knows of a machine; where steps tell which
// plan is better, it may be less.
std::optional<Plan> Planner::better(const Plan& plan, const Profile& profile,
                                    const Machine& machine, PlanOptions options,
                                    bool steps_tell) try {
  constexpr double kSteps = 50;
  const double gain = steps_tell ? 0.01 : 0.05;
  const double most_us = (1 - gain) * plan.predicted_step_us, least_us = ideal_us(profile);
  if (plan.moves.empty() || least_us > most_us) return std::nullopt;
  options.time_limit_s =
      std::min(options.time_limit_s, kSteps * (plan.predicted_step_us - least_us) / 1e6);
  const auto policy = make_policy("auto");
  auto other = planned(dynamic_cast<PlannedPolicy&>(*policy), profile, machine, options);
  if (other.predicted_step_us > most_us) return std::nullopt;
  return other;
} catch (const Error&) {  // it has found none in that time
  return std::nullopt;
}

// Of the profile such a policy needs the peak, for a share of it, and how much a kernel uses.
Planner::Outcome Planner::page(PagedPolicy& policy, const Profile& profile) const {
  const auto limit = limit_.for_plan(profile);
  require_workable(limit, options_);
  return {.plan = {},
          .rival = {},
          .pager = policy.prepare(machine_,
                                  {.fast_bytes = limit, .look_ahead = look_ahead(profile, limit)}),
          .fast_bytes = limit};
}

void Planner::require_valid(const Plan& plan, const Profile& profile) const {
  require_live(plan, options_, can_replay_now());
  tell_large_ops(plan);
  if (const auto wrong = plan::verify(plan, profile); !wrong.empty())
    throw Error(fmt::format("the plan is not valid ({} objections), for one: {}", wrong.size(),
                            wrong.front()));
}

// Without a guard no op can be streamed through less than it uses at once. What it names may be
// more than that: what it frees on its way counts in the plan, which knows no order within an op.
void Planner::tell_large_ops(const Plan& plan) const {
  if (engine_.guarded() || plan.streamed_ops.empty()) return;
  voice_.say(fmt::format(
      "{} ops name more than a budget of {} holds: where one uses all of it at once, training "
      "stops; from {} on none does",
      plan.streamed_ops.size(), print_bytes(plan.fast_bytes),
      print_bytes(plan.smallest_unstreamed_budget)));
}

}  // namespace sentinel
