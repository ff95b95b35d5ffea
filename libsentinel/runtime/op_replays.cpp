// Asks the follower what the plan replays, and has it done.
#include "runtime/op_replays.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/of_thread.h"

namespace sentinel {

OpReplays::OpReplays(Engine& engine, Training& training, std::mutex& lock, OpOrder order,
                     const std::string& inject)
    : engine_(engine),
      training_(training),
      lock_(lock),
      remaking_(engine, training.space(), training.lane(), lock, order, inject) {}

Remaking::Op& OpReplays::op() { return of_thread<Remaking::Op>(); }

bool OpReplays::plan_replays() {
  auto& follower = training_.follower();
  const auto* kind = follower.active();
  return kind != nullptr && kind->replays_ops() && remaking_.possible() && !follower.diverged();
}

// A step that has turned out to be of another kind knows no recipes.
void OpReplays::begin(PlanFollower::Op& plan, const char* name, Guard& guard) {
  auto& follower = training_.follower();
  auto* kind = follower.active();
  const bool follows = plan_replays();
  const bool followed = remaking_.follows(), placed = plan.place.position != StepMatcher::kLost;
  const auto role =
      follows ? std::uint64_t{kind->space_plan()} << 32 | plan.place.position : std::uint64_t{0};
  remaking_.op_begins(op(), name, follows, role);
  plan.discarding = follows;
  op().replayed =
      follows && placed && kind->replays(OpId(plan.place.position)) && remaking_.repeats(role);
  std::vector<TensorNumber> numbers;
  if (follows && placed)
    for (const auto id : kind->remade_before(OpId(plan.place.position)))
      if (const auto* tensor = kind->live(id, training_.space()))
        numbers.push_back(remaking_.number(*tensor));
  const double before_us = numbers.empty() ? 0 : remaking_.counters().us;
  guard.unlock();
  if (!numbers.empty()) {
    remaking_.remake(numbers);
    const Guard again(lock_);
    const double us = remaking_.counters().us - before_us;
    if (us > 0 && follower.active() == kind) kind->replayed_before(OpId(plan.place.position), us);
  }
  if (followed && !follows) remaking_.all_there();
}

void OpReplays::step_ended() {
  if (!any() || remaking_.is_in_op() || plan_replays()) return;
  remaking_.ends();
  look_whether_over();
}

bool OpReplays::names(const LiveTensor& tensor, bool writes, bool overwrites) {
  return remaking_.follows() && remaking_.names(op(), tensor, writes, overwrites);
}

// What cannot be discarded is demoted.
void OpReplays::end(PlanFollower::Op& plan) {
  if (!remaking_.follows()) return;
  auto& left = op().discards;
  left.clear();
  const auto due = std::exchange(plan.discards, {});
  for (const auto& each : due) left.push_back({each.tensor, each.ends});
  remaking_.op_ended(op());
  if (left.empty()) return;
  const Guard guard(lock_);
  const auto stays = [&left](const LiveTensor& tensor) {
    return std::ranges::any_of(left, [&](const auto& l) { return l.tensor.birth == tensor.birth; });
  };
  for (const auto& each : due)
    if (stays(each.tensor)) training_.follower().demote_instead(each);
}

bool OpReplays::wants_recipes() noexcept {
  if (!any() || !remaking_.possible()) return false;
  const Guard guard(lock_);
  return plan_replays();
}

bool OpReplays::wants_recipe() noexcept {
  return remaking_.follows() && !Remaking::replays_here() && op().open && op().replayed;
}

// Another device's, or a part of a block's: nothing is made from what no recipe names.
void OpReplays::reached(const void* storage, bool lasting) noexcept {
  if (!remaking_.possible() || Remaking::replays_here() || !engine_.contains(storage)) return;
  Guard guard(lock_);
  const auto* found = training_.space().find(storage);
  if (found == nullptr || remaking_.orphan(*found)) return;
  const auto tensor = *found;
  guard.unlock();
  remaking_.reach(tensor, lasting);
}

std::uint64_t OpReplays::number(const void* storage) noexcept {
  if (!engine_.contains(storage)) return 0;
  const Guard guard(lock_);
  const auto* tensor = training_.space().find(storage);
  return tensor != nullptr && !remaking_.orphan(*tensor) ? remaking_.number(*tensor) : 0;
}

void OpReplays::recipe(void* recipe, Replays::Numbers read, Replays::Numbers written) noexcept {
  const Guard guard(lock_);
  remaking_.note(recipe, op(), read, written);
}

}  // namespace sentinel
