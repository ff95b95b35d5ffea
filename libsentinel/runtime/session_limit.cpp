// The limit of a run: what --fast says, or what the process's memory cgroup leaves to tensors,
// which changes with what the program takes besides (DESIGN.md, "Budget").
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "engine/gpu/pool_engine.h"
#include "engine/host/limits.h"
#include "runtime/session.h"
#include "runtime/workable.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

// For what the program takes between two looks at its memory cgroup.
constexpr std::uint64_t kCgroupSpare = 64_MiB;

}  // namespace

// What tensors may have of this process's memory cgroup: what they hold and what is left, but for a
// spare. None: the machine is the limit.
std::optional<std::uint64_t> Session::cgroup_room() const {
  const auto left = cgroup_headroom();
  if (!left) return std::nullopt;
  const auto all = engine_->counters().held_bytes + *left;
  if (all >= physical_bytes()) return std::nullopt;
  return all - std::min(kCgroupSpare, all / 4);
}

// With a budget in bytes the limit holds from the first tensor on. Without one, or with a share of
// a peak that is not known yet, what the memory cgroup leaves is the budget until there is a plan.
void Session::hold_warmup_budget() {
  if (options_.fast.bytes != 0) {
    require_workable(options_.fast.bytes, options_);
    summary_.fast_limit_bytes = options_.fast.bytes;
  }
  if (engine_->in_place()) return;  // nothing is in fast memory before there is a plan
  if (options_.fast.bytes != 0) return engine_->set_budget(options_.fast.bytes);
  if (driver_) return;  // a device that is full is a budget
  within_cgroup_ = cgroup_room().has_value();
  keep_within_cgroup(false);
}

// What is not tensors grows in the first steps: the budget follows it. Once there is a plan, it is
// no more than the plan was made for. What a step takes for a while the spare is for: within one
// the budget shrinks late, and it grows between two.
void Session::keep_within_cgroup(bool in_step) {
  if (!within_cgroup_) return;
  looked_us_ = now_us();
  const auto left = cgroup_room();
  if (!left) return;
  auto room = std::max(*left, smallest_budget(options_));
  const bool planned = !buckets_.empty();
  if (planned) room = std::min(room, buckets_.front()->plan().fast_bytes);
  const bool shrinks = room + kCgroupSpare / (in_step ? 2 : 4) < cgroup_budget_;
  if (!shrinks && (in_step || room < cgroup_budget_ + kCgroupSpare / 4)) return;
  const bool limits =
      summary_.fast_limit_bytes != 0 || (planned && room < summary_.peak_unlimited_bytes);
  if (shrinks && limits && !std::exchange(told_of_growth_, true))
    say(
        fmt::format("what is not tensors has grown: of the memory cgroup's limit {} are left to "
                    "tensors, {} before",
                    print_bytes(room), print_bytes(cgroup_budget_)));
  engine_->set_budget(cgroup_budget_ = room);
  if (limits) limit_is(room);
}

void Session::limit_is(std::uint64_t bytes) {
  summary_.fast_limit_bytes = bytes;
  summary_.peak_fast_bytes = engine_->counters().peak_bytes;  // of the time under the limit
}

// Without --fast it is what the memory cgroup leaves once the program has its own, where a
// profile's tensors do not fit into that with some fragmentation.
void Session::settle_cgroup_limit(const Profile& profile) {
  within_cgroup_ = within_cgroup_ && options_.fast.unlimited();
  if (!within_cgroup_ || summary_.fast_limit_bytes != 0) return;
  keep_within_cgroup(false);
  const auto peak = peak_live_bytes(profile), room = cgroup_room().value_or(cgroup_budget_);
  if (peak + peak / 4 <= room) return;
  require_workable(room, options_);
  say(
      fmt::format("tensors peak at {}, and the memory cgroup leaves {} for them: training goes on "
                  "within that",
                  print_bytes(peak), print_bytes(room)));
  engine_->set_budget(cgroup_budget_ = room);
  limit_is(room);
}

// Before a profile tells the peak, the most that was alive until now is taken for it.
std::uint64_t Session::device_budget() {
  const Guard guard(lock_);
  if (summary_.fast_limit_bytes != 0 || !driver_) return summary_.fast_limit_bytes;
  const auto room = driver_->free_bytes() + engine_->counters().held_bytes;
  const auto most = room - gpu::spare_of(room);
  if (options_.fast.percent <= 0) return most;
  return std::min(most, static_cast<std::uint64_t>(static_cast<double>(space_.most_live_bytes()) *
                                                   options_.fast.percent / 100));
}

bool Session::device_has_room(std::size_t bytes) {
  const Guard guard(lock_);
  if (!driver_ || in_child_) return false;
  const auto room = driver_->free_bytes() + engine_->counters().held_bytes;
  return space_.live_bytes() <= room && bytes <= room - space_.live_bytes();
}

// The first kind of step that was profiled settles it for all others. Of a device it is no more
// than the engine takes.
std::uint64_t Session::fast_bytes(const Profile& profile) const {
  const bool settled = !buckets_.empty() || keeps_limit_ || within_cgroup_;
  if (settled && summary_.fast_limit_bytes != 0) return summary_.fast_limit_bytes;
  auto asked = options_.fast.bytes;
  if (options_.fast.percent > 0)
    asked = static_cast<std::uint64_t>(static_cast<double>(peak_live_bytes(profile)) *
                                       options_.fast.percent / 100);
  if (driver_) {
    const auto room = driver_->free_bytes() + engine_->counters().peak_bytes;
    const auto most = room - gpu::spare_of(room);
    if (options_.fast.unlimited()) return most;
    if (asked > most)
      say(
          fmt::format("--fast asks for {}; training goes on within {}, for the device has {} and "
                      "the program's libraries need some of it",
                      print_bytes(asked), print_bytes(most), print_bytes(room)));
    return std::min(asked, most);
  }
  if (!options_.fast.unlimited()) return asked;
  return options_.nodes ? free_bytes(options_.nodes->fast) : physical_bytes();
}

}  // namespace sentinel
