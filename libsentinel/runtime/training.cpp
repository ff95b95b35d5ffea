// Begins and ends steps: warmup, profile, plan, trial, steady.
#include "runtime/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "engine/io/slow_file.h"
#include "plan/check/made_again.h"
#include "runtime/limit/gpu_counting.h"
#include "runtime/limit/replay_rows.h"
#include "runtime/limit/workable.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t kMostPlans = 10;  // kinds of step; the paper's, section IV-E

void name_tiers(Summary& summary, const SessionOptions& options) {
  summary.policy = options.policy;
  if (options.gpu.device)
    summary.tiers = {fmt::format("gpu{}", *options.gpu.device), "host",
                     options.gpu.host_bytes != 0 ? options.tiers.slow_directory : ""};
  if (options.tiers.nodes)
    summary.tiers = {fmt::format("node{}", options.tiers.nodes->fast),
                     fmt::format("node{}", options.tiers.nodes->slow),
                     options.tiers.three() ? options.tiers.slow_directory : ""};
  summary.drives.rated_tb = options.moves.rated_tb;
  summary.drives.count = split_directories(options.tiers.slow_directory).size();
  summary.granule_bytes = options.tiers.granule_bytes;
}

}  // namespace

Training::Training(const SessionOptions& options, std::string framework, OpOrder order,
                   Engine& engine, gpu::Driver* driver, const Voice& voice)
    : options_(options),
      engine_(engine),
      voice_(voice),
      space_(engine, options.fast.bytes),
      limit_(options_, engine, driver, summary_, voice_, order),
      lane_(engine),
      recording_(order, engine),
      counting_(options_, engine, driver, recording_.recorder(), voice_),
      profile_(options_, std::move(framework), recording_.recorder(), counting_, summary_, voice_),
      planner_(options_, engine, limit_, voice_),
      follower_(engine, space_, limit_, order, options_.moves.depth / 2),
      log_(options_, engine, space_.table(), summary_, voice_) {
  if (driver != nullptr && !gpu::counted(options_))
    counting_.refuse("counting a GPU's accesses page by page was not asked for");
}

void Training::begin(gpu::Driver* driver, const Remaking& remaking) {
  planner_.replay_with(remaking);
  log_.tells_of(remaking);
  name_tiers(summary_, options_);
  log_.trains(profile_.framework());
  if (options_.mode == Mode::run) tell_no_replays();
  log_.tally().end_with_command();
  if (options_.mode == Mode::run) {
    log_.tally().begins();
    require_policy(options_);
    if (driver != nullptr)
      planner_.describe_machine();  // while the device still has room to be measured
    limit_.hold_before_plan();
    if (engine_.in_place() == nullptr && (limit_.bytes() != 0 || limit_.within_cgroup()))
      log_.tally().holds_limit();
    const bool later = limit_.shared() || (limit_.within_cgroup() && options_.fast.unlimited());
    if (later && !options_.profile.empty())
      phases_.files_wait();
    else
      start_from_files();
  }
  if (options_.mode == Mode::arena) {
    phases_.enter(State::idle);
    recording_.ask(false, false);
  }
  if (phases_.is(State::warmup) && follower_.kinds().empty() && !phases_.files_are_waiting() &&
      counting_.needs_shared_memory())
    counting_.share_memory();
  begin_step();
}

// Other threads, a fork and a signal find the lock free meanwhile.
void Training::await_admission(std::unique_lock<std::mutex>& guard) noexcept {
  while (const auto grant = limit_.awaits_admission()) try {
      guard.unlock();
      grant->admit();
      guard.lock();
      if (limit_.admitted()) log_.tally().holds_limit();
    } catch (const std::exception& error) {
      refuse(error);
    }
}

void Training::tell_no_replays() {
  summary_.made_again.none = no_replays(options_, planner_.can_replay());
  if (options_.moves.recompute_asked && !summary_.made_again.none.empty())
    voice_.say(fmt::format("no replays: {}", summary_.made_again.none));
}

std::vector<ReplayRow> Training::rows_of(std::size_t plan) const {
  const auto& kind = *follower_.kinds()[plan];
  return kind.replays_ops() ? replay_rows(kind, plan, planner_.described_machine())
                            : std::vector<ReplayRow>{};
}

// Of all kinds of step, once all were seen.
void Training::list_replays() {
  const auto& kinds = follower_.kinds();
  for (std::size_t plan = 0; plan < kinds.size(); ++plan)
    std::ranges::move(rows_of(plan), std::back_inserter(summary_.made_again.rows));
  if (summary_.made_again.none.empty() && summary_.made_again.rows.empty())
    summary_.made_again.none = kinds.empty() ? "no plan was made"
                               : planner_.settings_forbade()
                                   ? std::string(plan::kSettings)
                                   : fmt::format("policy {} has planned none", summary_.policy);
}

void Training::begin_step() {
  ++begun_;
  follower_.begin_step();
  log_.publication().step_begins(follower_.active(), phases_.paged(), phases_.is(State::idle));
  recording_.begin_step(space_.table(), engine_.arena());
}

void Training::end_step() {
  log_.tally().saw_step();
  if (phases_.is(State::steady)) log_.tally().ended_planned_step();
  if (phases_.is(State::profiling) && phases_.manual())  // the program says when it ends
    return phases_.step_over();
  if (phases_.is(State::profiling))
    end_profile_step();
  else if (phases_.is(State::warmup))
    end_warmup_step();
  else if (phases_.is(State::steady) && recording_.stillness().step_was_untold())
    log_.step_ended("steady", follower_.accesses(), true);
  else if (phases_.is(State::steady))
    end_steady_step();
  phases_.step_over();
  const auto regrant = limit_.follow_grant();
  if (regrant != FastLimit::Regrant::none)
    plan_within_grant(regrant);
  else if (follower_.follows() && follower_.active()->drift().wants_plan())
    plan_after_drift();
  else if (compares_plans())
    exchange_plans();
  follower_.take_over();
  recording_.stillness().rest(may_rest());
  begin_step();
  if (phases_.take_count()) count_step();
}

// Nothing moves, and nobody wants to know of the next step. On the processor, besides: within a
// limit there is room to spare, and no op's end has to look at the memory cgroup. Where slow memory
// is used in place, each op's accesses are counted.
bool Training::may_rest() const {
  if (recording_.on() || counting_.active() || phases_.counts_next() || phases_.paged())
    return false;
  const bool planned = phases_.is(State::steady) && follower_.moves_nothing() &&
                       !follower_.diverged() && !follower_.resized() &&
                       !follower_.active()->has_peaks();
  if (!engine_.guarded()) return planned;
  if (engine_.in_place() != nullptr || limit_.within_cgroup()) return false;
  return (planned || phases_.is(State::idle)) &&
         Stillness::has_room(space_.most_live_bytes(), limit_.bytes());
}

void Training::end_warmup_step() {
  log_.step_ended("warmup", follower_.accesses(), false);
  const auto signature = recording_.recorder().signature();
  const bool equal = phases_.steps() > 0 && profile_.as_last_step();
  profile_.uncounted_step_ended();
  phases_.warmed_up();
  limit_.follow_cgroup(false);
  if (phases_.has_grown() && phases_.take_files()) start_from_files();
  if (!follower_.kinds()
           .empty()) {  // from files: the plan is tried, and kept once its step is seen
    const bool seen = follower_.knows(signature), alike = follower_.as_profiled(signature);
    const bool keep = seen || (alike && !options_.plan.empty());
    const bool wait = phases_.is_patient() && !(alike && equal);  // the next may be the very same
    if (keep || wait) follower_.activate(*follower_.kinds().front());
    if (keep) phases_.enter(State::steady);
    recording_.ask(!keep, !keep);
    if (keep || wait) return;
    forget_files(alike);
  }
  phases_.end_warmup(equal);
}

void Training::start_from_files() {
  if (!options_.plan.empty()) {
    auto [profile, plan] = planner_.stored_plan();
    planner_.require_valid(plan, profile);
    if (!plan.recomputations.empty()) planner_.describe_machine();  // which tells their costs
    adopt_plan(std::move(profile), std::move(plan));
  } else if (!options_.profile.empty()) {
    auto profile = planner_.stored_profile();
    if (profile.meta.complete) return adopt(std::move(profile));
    voice_.say(fmt::format("{} is incomplete: {}; profiling again", options_.profile,
                           profile.meta.incomplete_reason));
  }
}

// A plan for this process's order of ops is better than that of another's: of a stored profile that
// is alike only the limit stays.
void Training::forget_files(bool alike) {
  follower_.stop();
  if (!options_.plan.empty())
    throw Error(
        fmt::format("{} was made for another model, batch or program: no step so far equals the "
                    "one it plans. Leave out --plan to profile this one",
                    options_.plan));
  voice_.say(alike
                 ? fmt::format("{} is of this step with its ops in another order, which {} chooses "
                               "anew in each process; profiling again, within the same limit",
                               options_.profile, profile_.framework())
                 : fmt::format("{} is of another step than this program's; profiling again",
                               options_.profile));
  follower_.forget_plans();
  limit_.forget_plan(alike);
}

// Right after a step began.
void Training::count_step() {
  counting_.begin(space_.table());
  if (!counting_.active()) return;
  profile_.begin_snapshots();
  profile_.snapshot();
}

// A fork ends counting: the next step is tried, and in the end op inputs and outputs are taken.
void Training::end_profile_step() {
  const bool interrupted = !counting_.active() && counting_.possible();
  counting_.end();
  if (interrupted && phases_.try_again())
    return log_.step_ended("warmup", follower_.accesses(), false);
  if (interrupted) {
    voice_.say(
        "the program forked while its step was profiled: op inputs and outputs are taken for "
        "accesses");
    counting_.discard();
  }
  log_.step_ended("profile", follower_.accesses(), false);
  const auto since = Clock::now();
  auto profile = profile_.take(true, "");
  counting_.profiled();
  profile_.store(profile);
  summary_.no_step(since);
  const bool wanted =
      options_.mode == Mode::run && !phases_.paged() && !follower_.knows(profile.meta.signature);
  if (wanted && follower_.kinds().size() < kMostPlans)
    adopt(std::move(profile));
  else
    phases_.enter(manages() ? State::steady : State::idle);
  if (!follower_.kinds().empty() && !follower_.follows())
    follower_.activate(*follower_.kinds().front());
  recording_.ask(false, false);
}

// A step of a kind that was not profiled yet ran by demand; seen twice, it gets a plan of its own.
void Training::end_steady_step() {
  if (follower_.follows() && engine_.in_place() != nullptr) {
    const bool trying = follower_.active()->trials().trying();
    log_.step_ended(trying ? "trial" : "steady", follower_.accesses(), true);
    follower_.end_on_trial();
  } else {
    log_.step_ended("steady", follower_.accesses(), true);
  }
  limit_.follow_cgroup(false);
  if (phases_.paged()) return;
  bool record = recording_.on();
  const auto signature = follower_.signature();
  const auto differs = follower_.difference();
  if (follower_.follows()) follower_.active()->growth().step_over();
  if ((differs && differs->follows) || follower_.as_profiled(signature)) {
    if (differs && differs->larger) outgrow(differs->bytes);
    const bool was_measured =
        limit_.shared() && follower_.follows() && follower_.active()->drift().measures();
    if (phases_.saw_known_step() || was_measured) record = false;
    record |= measure();
  } else if (follower_.kinds().size() < kMostPlans) {
    const bool again = phases_.saw_new_step(follower_.family_signature());
    if (again && record && signature == recording_.recorder().signature()) plan_another();
    record = true;
  }
  // Under a plan without moves nothing else says what is in use.
  const bool by_demand = limit_.within_cgroup() && limit_.bytes() != 0 && follower_.moves_nothing();
  recording_.ask(record, record || by_demand);
}

int Training::start_profile() {
  if (phases_.manual()) return -EALREADY;
  recording_.stillness().stir();
  counting_.end();  // of a step that was chosen by itself
  log_.stop_watching();
  phases_.begin_by_hand();
  recording_.ask(true, true);
  begin_step();
  count_step();
  return 0;
}

int Training::end_profile() {
  if (!phases_.is(State::profiling) || !phases_.manual()) return -EINVAL;
  try {
    end_profile_step();
  } catch (...) {  // it could not be written or planned: the program hears of it and may go on
    phases_.enter(manages() ? State::steady : State::idle);
    phases_.end_by_hand();
    recording_.ask(false, false);
    throw;
  }
  phases_.end_by_hand();
  begin_step();
  return 0;
}

void Training::give_up(const std::string& why) {
  if (phases_.is(State::idle)) return;
  recording_.stillness().stir();
  counting_.end();
  log_.tally().gives_up();
  voice_.say(why);
  follower_.moves().borders().let_all_go();
  phases_.decide_by_pager(false);
  if (auto* paging = engine_.paging()) paging->page(nullptr);
  phases_.enter(State::idle);
  follower_.stop();
  recording_.ask(false, false);
  limit_.lift();
  if (engine_.guarded()) return;
  space_.table().for_each([this](LiveTensor& tensor) {
    engine_.await(tensor.address, tensor.bytes);
    if (!tensor.held) lane_.hold(tensor);
  });
}

void Training::finish(const char* reason) {
  if (phases_.is(State::profiling)) {
    counting_.end();
    profile_.store(profile_.take(false, reason));
  }
  if (options_.mode == Mode::record && phases_.is(State::warmup) && phases_.steps() > 0)
    voice_.say(fmt::format(
        "the program ended after {} steps, before one could be profiled; let it run for at "
        "least {}",
        phases_.steps(), StepPhases::kMostWarmups + 1));
  list_replays();
  log_.end(phases_.steps(), follower_.intervals());
  phases_.enter(State::idle);
  recording_.ask(false, recording_.wants_tensors());
}

}  // namespace sentinel
