// From a profile to a plan, and going on under it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/host/limits.h"
#include "measure/measure.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "runtime/session.h"
#include "runtime/workable.h"
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

void Session::start_from_files() {
  if (options_.profile.empty() && options_.plan.empty()) return;
  if (options_.plan.empty()) return adopt(read_any(options_.profile));
  auto plan = plan::read_plan(options_.plan);
  auto profile = read_any(plan.profile_path);
  adopt_plan(std::move(profile), std::move(plan));
}

// `sentinel run` has measured the machine beforehand; a program that was started without it
// measures it now.
Machine Session::machine() const {
  const auto local = local_machine(options_);
  const bool measured = !options_.machine.empty() || sim::has_local_machine(local);
  auto machine = measured ? sim::find_machine(options_.machine.empty() ? local : options_.machine)
                          : measure_machine(options_);
  if (options_.host_bytes != 0) put_drive_below(machine, options_);
  machine.granule_bytes = engine_->granule();  // whatever the description says
  machine.exclusive = true;                    // engines keep no copy of what they bring
  return machine;
}

void Session::adopt(Profile profile) {
  settle_cgroup_limit(profile);
  if (machine_.tiers.empty()) machine_ = machine();
  auto policy = make_policy(options_.policy);
  if (auto* paged = dynamic_cast<PagedPolicy*>(policy.get())) return page(*paged, profile);
  auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
  const PlanOptions plan_options{.fast_bytes = fast_bytes(profile),
                                 .pool_frames = static_cast<std::uint32_t>(options_.depth),
                                 .threads = thread_count(),
                                 .recompute = false,  // the engine executes moves only,
                                 .judge = sim::judge(),
                                 .parts = false,      // and whole tensors;
                                 .copies = false,     // written when they leave
                                 .in_place = false};  // Case 3 is tried in real steps
  require_workable(plan_options.fast_bytes, options_, profile, machine_, planned);
  auto plan = planned.plan(profile, machine_, plan_options);
  if (!plan.moves.empty())  // a policy's own cost model is coarser
    plan.predicted_step_us = plan_options.judge(profile, machine_, plan).step_us;
  adopt_plan(std::move(profile), std::move(plan));
}

// Of the profile such a policy needs the peak, for a share of it, and how much a kernel uses.
void Session::page(PagedPolicy& policy, const Profile& profile) {
  const auto limit = fast_bytes(profile);
  require_workable(limit, options_);
  engine_->tick();  // the step's last op is over
  if (!options_.fast.unlimited()) {
    engine_->set_budget(limit);
    summary_.fast_limit_bytes = limit;
    summary_.peak_fast_bytes = 0;  // of the time under the limit
  }
  engine_->page(
      policy.prepare(machine_, {.fast_bytes = limit, .look_ahead = look_ahead(profile, limit)}));
  if (state_ == State::warmup) return;  // from a file: this program's own step settles it
  pages_ = true;
  state_ = State::steady;
  record_ = wants_tensors_ = false;
}

// Without a guard no op can be streamed through less than it uses at once. What it names may be
// more than that: what it frees on its way counts in the plan, which knows no order within an op.
void Session::tell_large_ops(const Plan& plan) const {
  if (engine_->guarded() || plan.streamed_ops.empty()) return;
  say(fmt::format(
      "{} ops name more than a budget of {} holds: where one uses all of it at once, training "
      "stops; from {} on none does",
      plan.streamed_ops.size(), print_bytes(plan.fast_bytes),
      print_bytes(plan.smallest_unstreamed_budget)));
}

void Session::adopt_plan(Profile profile, Plan plan) {
  require_live(plan, options_);
  tell_large_ops(plan);
  if (const auto wrong = plan::verify(plan, profile); !wrong.empty())
    throw Error(fmt::format("the plan is not valid ({} objections), for one: {}", wrong.size(),
                            wrong.front()));
  const bool first = buckets_.empty();
  const bool limited = this->limited() || engine_->in_place();
  const auto limit = limited ? plan.fast_bytes : 0;
  buckets_.push_back(std::make_unique<Bucket>(std::move(profile), std::move(plan), order_, space_,
                                              parse_late(options_.late)));
  const auto& adopted = *buckets_.back();
  summary_.planned(adopted.profile(), adopted.plan());
  if (!first) {  // the engine keeps its limit; the plan is followed when its step comes
    state_ = State::steady;
    return;
  }
  engine_->tick();  // the step's last op is over
  if (limit != 0) engine_->set_budget(cgroup_budget_ = limit);
  summary_.fast_limit_bytes = limit;
  if (limit != 0 && !keeps_limit_) summary_.peak_fast_bytes = 0;  // of the time under the limit
  const bool seen = state_ != State::warmup;  // from a file: its step has yet to be seen
  if (seen) state_ = State::steady;
  activate(*buckets_.back());
  record_ = wants_tensors_ = !seen;
}

void Session::activate(Bucket& bucket) {
  active_ = &bucket;
  record_ = wants_tensors_ = false;
  space_.activate(bucket.space_plan());
  bucket.bind(space_);
  engine_->reuse_dead_blocks();  // what warmed up lay elsewhere
  bring(bucket);
  if (!bucket.moves_anything()) return;
  for (const auto id : bucket.away_at_start())
    if (auto* tensor = bucket.live(id, space_);
        tensor != nullptr && tensor->wanted && !tensor->stays) {
      tensor->wanted = false;
      engine_->demote(tensor->address, tensor->bytes);
    }
}

// What was born in slow memory, before there was a plan or for lack of room, and belongs in fast.
void Session::bring(Bucket& bucket) {
  for (const auto id : bucket.here_at_start())
    if (auto* tensor = bucket.live(id, space_); tensor != nullptr && !tensor->wanted) {
      tensor->wanted = true;
      engine_->promote(tensor->address, tensor->bytes);
    }
}

}  // namespace sentinel
