// Plans for a training's kinds of step: the first one, and those that take its place.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "plan/step/resized.h"
#include "runtime/training.h"
#include "sentinel/error.h"

namespace sentinel {

// In the middle of training: without a plan such steps go on by demand.
void Training::plan_another() {
  profile_.forget_times();
  try {
    const auto since = Clock::now();
    auto profile = profile_.take(true, "");
    summary_.no_step(since);
    adopt(std::move(profile));
  } catch (const Error& error) {
    voice_.say(fmt::format("a kind of step gets no plan and runs by demand: {}", error.what()));
  }
}

// Tensors of the sizes that this step has come to would not find room under the plan. The plan that
// takes its place is for both steps.
void Training::outgrow(const std::vector<std::uint64_t>& bytes) {
  auto& kind = *follower_.active();
  if (!kind.growth().due()) return;
  kind.growth().planned();
  try {
    auto profile = plan::resized(kind.profile(), bytes);
    profile.meta.signature = StepMatcher(profile).signature();
    auto decision = planner_.decide(profile);
    if (!decision.plan) return;
    planner_.require_valid(*decision.plan, profile);
    const auto& larger = follower_.replace(kind, std::move(profile), std::move(*decision.plan),
                                           parse_late(options_.moves.late));
    summary_.outgrown(larger.profile(), larger.plan());
  } catch (const Error& error) {
    voice_.say(fmt::format("larger steps than before run by demand in part: {}", error.what()));
  }
}

// Jobs that come and go change how long ops take. Whether the next step is to be measured, too.
bool Training::measure() {
  if (!limit_.shared() || !follower_.follows()) return false;
  auto& kind = *follower_.active();
  if (recording_.on() && kind.drift().measures() &&
      kind.drift().measured(profile_.times_of(kind.profile()))) {
    auto profile = kind.profile();
    kind.drift().tell(profile);
    limit_.drifted(profile);
  }
  return kind.drift().step_over();
}

void Training::plan_again(Bucket& kind) {
  try {
    auto profile = kind.profile();
    kind.drift().tell(profile);
    kind.drift().plan_made();
    auto decision = planner_.decide(profile);
    if (!decision.plan) return;
    const auto& fresh = follower_.replace(kind, std::move(profile), std::move(*decision.plan),
                                          parse_late(options_.moves.late));
    summary_.outgrown(fresh.profile(), fresh.plan());
  } catch (const Error& error) {
    voice_.say(fmt::format("the former plan is followed: {}", error.what()));
  }
}

void Training::plan_after_drift() {
  const auto since = Clock::now();
  auto& kind = *follower_.active();
  if (kind.moves_anything())
    plan_again(kind);
  else
    kind.drift().plan_made();  // it needs no other
  summary_.no_step(since);
}

// The broker has changed the budget. Without a new plan the old one is followed, and the engine
// holds the budget. Where nothing moves, the drive's time is no matter.
void Training::plan_within_grant(FastLimit::Regrant regrant) {
  const auto since = Clock::now();
  for (std::size_t kind = 0; kind < follower_.kinds().size(); ++kind)
    if (auto& each = *follower_.kinds()[kind];
        regrant == FastLimit::Regrant::bytes || each.moves_anything())
      plan_again(each);
  summary_.no_step(since);
}

std::size_t Training::number_of(const Bucket& kind) const {
  const auto& kinds = follower_.kinds();
  return static_cast<std::size_t>(std::ranges::find(kinds, &kind, &std::unique_ptr<Bucket>::get) -
                                  kinds.begin());
}

// The step that has ended was a plan's that has a rival: whether to change to the other.
bool Training::compares_plans() {
  if (!follower_.follows() || follower_.diverged() || summary_.steps.back().phase != "steady")
    return false;
  auto& kind = *follower_.active();
  auto& rivalry = kind.rivalry();
  if (follower_.resized()) return rivalry.give_way();
  if (!rivalry.open()) return false;
  const auto first = rivalry.other().policy, second = kind.plan().policy;
  const bool replays = !rivalry.other().recomputations.empty();
  const bool changes = rivalry.step_over(summary_.steps.back().ms);
  if (!rivalry.decided()) return changes;
  const auto ms = fmt::format("a step takes {:.1f} ms", rivalry.median(0));
  if (replays)
    voice_.say(fmt::format("{} with replays and {:.1f} ms without: it goes on {}", ms,
                           rivalry.median(1), changes ? "with them" : "without"));
  else
    voice_.say(fmt::format("{} by policy {} and {:.1f} ms by {}: it goes on by {}", ms, first,
                           rivalry.median(1), second, changes ? first : second));
  if (!changes)
    for (auto& row : summary_.made_again.rows)
      row.given_up = row.given_up || row.plan == number_of(kind);
  return changes;
}

// What the plan has made again is listed now, for it may not come back; once it has, anew at the
// end.
void Training::exchange_plans() try {
  const auto since = Clock::now();
  auto& kind = *follower_.active();
  const auto number = number_of(kind);
  auto rows = rows_of(number);
  auto rivalry = std::exchange(kind.rivalry(), {});
  auto& other = follower_.replace(kind, kind.profile(), rivalry.exchange(kind.plan()),
                                  parse_late(options_.moves.late));
  other.rivalry() = std::move(rivalry);
  auto& listed = summary_.made_again.rows;
  std::erase_if(listed, [&](const auto& row) { return row.plan == number; });
  std::ranges::move(rows, std::back_inserter(listed));
  if (number == 0) summary_.exchanged(other.profile(), other.plan());
  summary_.no_step(since);
} catch (const Error& error) {
  voice_.say(fmt::format("the former plan is followed: {}", error.what()));
}

void Training::adopt(Profile profile) {
  limit_.settle(profile);
  const auto since = Clock::now();
  auto decision = planner_.decide(profile);
  summary_.no_step(since);
  if (decision.plan) {
    auto& adopted = adopt_plan(std::move(profile), std::move(*decision.plan));
    if (decision.rival) adopted.rivalry().begin(*std::move(decision.rival));
    return;
  }
  if (engine_.paging() == nullptr) throw Error("page faults decide on a GPU's memory only");
  engine_.tick();  // the step's last op is over
  limit_.adopt_for_pager(decision.fast_bytes);
  engine_.paging()->page(std::move(decision.pager));
  if (phases_.is(State::warmup)) return;  // from a file: this program's own step settles it
  phases_.decide_by_pager(true);
  phases_.enter(State::steady);
  recording_.ask(false, false);
}

Bucket& Training::adopt_plan(Profile profile, Plan plan) {
  const bool first = follower_.kinds().empty();
  auto& adopted =
      follower_.add(std::move(profile), std::move(plan), parse_late(options_.moves.late));
  summary_.planned(adopted.profile(), adopted.plan());
  if (!first) {  // the engine keeps its limit; the plan is followed when its step comes
    phases_.enter(State::steady);
    return adopted;
  }
  engine_.tick();  // the step's last op is over
  const bool limited = limit_.limited() || engine_.in_place() != nullptr || options_.tiers.three();
  limit_.adopt(adopted.plan().fast_bytes, limited);
  const bool seen = !phases_.is(State::warmup);  // from a file: its step has yet to be seen
  if (seen) phases_.enter(State::steady);
  follower_.activate(adopted);
  recording_.ask(!seen, !seen);
  return adopted;
}

}  // namespace sentinel
