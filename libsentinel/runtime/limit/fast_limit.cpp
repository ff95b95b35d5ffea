// Computes the limit from --fast or the memory cgroup, and lets it follow the cgroup's room.
#include "runtime/limit/fast_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/host/limits.h"
#include "engine/host/ranks.h"
#include "runtime/limit/workable.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

// For what the program takes between two looks at its memory cgroup.
constexpr std::uint64_t kCgroupSpare = 64_MiB;

}  // namespace

FastLimit::FastLimit(const SessionOptions& options, Engine& engine, gpu::Driver* driver,
                     Summary& summary, const Voice& voice, OpOrder order)
    : options_(options),
      engine_(engine),
      driver_(driver),
      summary_(summary),
      voice_(voice),
      ranks_(rank_of_process().beside) {
  if (!options.sharing.broker.empty())
    grant_ = std::make_shared<Grant>(options, engine, smallest_budget(options), voice,
                                     order == OpOrder::sequence && ranks_ == 1);
}

// What tensors may have of this process's memory cgroup: what they hold and what is left, but for a
// spare; of what is left other ranks have as much. None: the machine is the limit.
std::optional<std::uint64_t> FastLimit::cgroup_room() const {
  const auto left = cgroup_headroom();
  if (!left) return std::nullopt;
  const auto held = engine_.counters().held_bytes;
  if (held + *left >= physical_bytes()) return std::nullopt;
  const auto all = held + *left / ranks_;
  return all - std::min(kCgroupSpare, all / 4);
}

// With a budget in bytes the limit holds from the first tensor on. Without one, or with a share of
// a peak that is not known yet, what the memory cgroup leaves is the budget until there is a plan.
void FastLimit::hold_before_plan() {
  if (grant_) {  // it comes with the first tensor
    if (options_.fast.bytes != 0) require_workable(options_.fast.bytes, options_);
    return;
  }
  if (options_.fast.bytes != 0) {
    require_workable(options_.fast.bytes, options_);
    summary_.fast_limit_bytes = options_.fast.bytes;
  }
  if (engine_.in_place() != nullptr) return;  // nothing is in fast memory before there is a plan
  if (options_.fast.bytes != 0) return engine_.set_budget(options_.fast.bytes);
  if (driver_) return;  // a device that is full is a budget
  if (options_.tiers.three()) return;
  within_cgroup_ = cgroup_room().has_value();
  follow_cgroup(false);
}

bool FastLimit::admitted() {
  if (!grant_ || bytes() != 0) return false;
  limit_is(grant_->bytes());
  return true;
}

// Ranks of one training have their peaks at the same time, and in any order nobody knows when a
// peak comes: nothing is lent then.
plan::PeakOptions FastLimit::peaks() const {
  constexpr double kAheadUs = 10e3, kValleyUs = 50e3;
  if (!grant_ || !grant_->has_peaks()) return {};
  return {.base = grant_->base(),
          .most = grant_->bytes(),
          .frames_bytes = frames_of_peaks(),
          .ahead_us = kAheadUs,
          .valley_us = kValleyUs};
}

// A plan is made anew for a change of a 32nd of what it was made for, not for less.
FastLimit::Regrant FastLimit::follow_grant() {
  if (!grant_ || !grant_->admitted()) return Regrant::none;
  summary_.peak_fast_bytes = std::max(summary_.peak_fast_bytes, grant_->take_most_held());
  const bool taken = grant_->take();
  if (taken) limit_is(grant_->bytes());
  const auto part = drive();
  const bool other_drive = std::exchange(planned_.drive, part) != part;
  if (!planned_.bytes) return Regrant::none;
  const auto bytes = grant_->bytes();
  const auto change = *planned_.bytes > bytes ? *planned_.bytes - bytes : bytes - *planned_.bytes;
  const bool other_bytes = taken && change >= *planned_.bytes / 32;
  if (other_bytes || other_drive) planned_.bytes = bytes;
  return other_bytes ? Regrant::bytes : other_drive ? Regrant::drive : Regrant::none;
}

void FastLimit::hold(std::uint64_t bytes) {
  if (grant_)
    grant_->hold(bytes);
  else
    engine_.set_budget(bytes);
}

// What is not tensors grows in the first steps: the budget follows it. Once there is a plan, it is
// no more than the plan was made for. What a step takes for a while the spare is for: within one
// the budget shrinks late, and it grows between two.
void FastLimit::follow_cgroup(bool in_step) {
  if (!within_cgroup_) return;
  looked_us_ = now_us();
  const auto left = cgroup_room();
  if (!left) return;
  auto room = std::max(*left, smallest_budget(options_));
  if (planned_.bytes) room = std::min(room, *planned_.bytes);
  const bool shrinks = room + kCgroupSpare / (in_step ? 2 : 4) < cgroup_budget_;
  if (!shrinks && (in_step || room < cgroup_budget_ + kCgroupSpare / 4)) return;
  const bool limits =
      summary_.fast_limit_bytes != 0 || (planned_.bytes && room < summary_.peak_unlimited_bytes);
  if (shrinks && limits && !std::exchange(told_of_growth_, true))
    voice_.say(
        fmt::format("what is not tensors has grown: of the memory cgroup's limit {} are left to "
                    "tensors, {} before",
                    print_bytes(room), print_bytes(cgroup_budget_)));
  engine_.set_budget(cgroup_budget_ = room);
  if (limits) limit_is(room);
}

void FastLimit::follow_cgroup_if_due() {
  constexpr double kLookUs = 50e3;
  if (now_us() - looked_us_ > kLookUs) follow_cgroup(true);
}

void FastLimit::adopt(std::uint64_t plan_bytes, bool limited) {
  planned_.bytes = plan_bytes;
  const auto limit = limited ? plan_bytes : 0;
  if (limit != 0) hold(cgroup_budget_ = limit);
  summary_.fast_limit_bytes = grant_ ? grant_->bytes() : limit;
  if (limit != 0 && !keeps_limit_) summary_.peak_fast_bytes = 0;  // of the time under the limit
}

void FastLimit::adopt_for_pager(std::uint64_t bytes) {
  if (options_.fast.unlimited()) return;
  engine_.set_budget(bytes);
  summary_.fast_limit_bytes = bytes;
  summary_.peak_fast_bytes = 0;  // of the time under the limit
}

void FastLimit::forget_plan(bool alike) {
  planned_.bytes.reset();
  keeps_limit_ = alike;
  if (within_cgroup_ && !alike) summary_.fast_limit_bytes = 0;
  summary_.forget_plans();  // but the limit holds until there is another
}

void FastLimit::lift() {
  within_cgroup_ = false;
  if (grant_) {
    if (grant_->admitted())
      voice_.say("this training leaves the broker: its memory is in nobody's account");
    grant_->leave();
    left_ = std::move(grant_);
  }
  engine_.set_budget(0);
}

void FastLimit::limit_is(std::uint64_t bytes) {
  summary_.fast_limit_bytes = bytes;
  summary_.peak_fast_bytes = engine_.counters().peak_bytes;  // of the time under the limit
}

// Without --fast it is what the memory cgroup leaves once the program has its own, where a
// profile's tensors do not fit into that with some fragmentation.
void FastLimit::settle(const Profile& profile) {
  if (grant_) {  // and a sixteenth for fragmentation
    const auto peak = peak_live_bytes(profile), ample = peak + peak / 16 + frames_of_peaks();
    const auto most = options_.fast.percent > 0 ? share_of(peak) : ample;
    return grant_->profiled(profile, most, plan::usual_bytes(profile, frames_of_peaks()));
  }
  within_cgroup_ = within_cgroup_ && options_.fast.unlimited();
  if (!within_cgroup_ || summary_.fast_limit_bytes != 0) return;
  follow_cgroup(false);
  const auto peak = peak_live_bytes(profile), room = cgroup_room().value_or(cgroup_budget_);
  if (peak + peak / 4 <= room) return;
  require_workable(room, options_);
  voice_.say(
      fmt::format("tensors peak at {}, and the memory cgroup leaves {} for them{}: training goes "
                  "on within that",
                  print_bytes(peak), print_bytes(room),
                  ranks_ > 1 ? fmt::format(" in each of {} ranks", ranks_) : ""));
  engine_.set_budget(cgroup_budget_ = room);
  limit_is(room);
}

// Before a profile tells the peak, the most that was alive until now is taken for it.
std::uint64_t FastLimit::device_budget(std::uint64_t most_live_bytes) const {
  if (summary_.fast_limit_bytes != 0 || !driver_) return summary_.fast_limit_bytes;
  const auto room = driver_->free_bytes() + engine_.counters().held_bytes;
  const auto most = room - gpu::spare_of(room);
  if (options_.fast.percent <= 0) return most;
  return std::min(most, static_cast<std::uint64_t>(static_cast<double>(most_live_bytes) *
                                                   options_.fast.percent / 100));
}

bool FastLimit::device_has_room(std::uint64_t live_bytes, std::uint64_t bytes) const {
  if (!driver_) return false;
  const auto room = driver_->free_bytes() + engine_.counters().held_bytes;
  return live_bytes <= room && bytes <= room - live_bytes;
}

// A share is no promise of bytes: too small a one is taken for the smallest that works.
std::uint64_t FastLimit::share_of(std::uint64_t peak_bytes) const {
  const auto share =
      static_cast<std::uint64_t>(static_cast<double>(peak_bytes) * options_.fast.percent / 100);
  const auto least = smallest_budget(options_);
  if (share < least && !std::exchange(told_of_least_, true))
    voice_.say(fmt::format(
        "{:g} % of the {} that tensors peak at are {}, less than can work: "
        "training goes on within {}, the smallest budget that does",
        options_.fast.percent, print_bytes(peak_bytes), print_bytes(share), print_bytes(least)));
  return std::max(share, least);
}

// A share of a peak that the memory cgroup has no room for would have the kernel end the process.
std::uint64_t FastLimit::within_room(std::uint64_t share) const {
  const auto left = options_.tiers.nodes ? std::nullopt : cgroup_room();
  const auto room = std::max(left.value_or(share), smallest_budget(options_));
  if (share <= room) return share;
  voice_.say(
      fmt::format("{:g}% of the peak are {}, and the memory cgroup leaves {}{}: training goes on "
                  "within that",
                  options_.fast.percent, print_bytes(share), print_bytes(room),
                  ranks_ > 1 ? fmt::format(" to each of {} ranks", ranks_) : ""));
  return room;
}

// The first kind of step that was profiled settles it for all others. Of a device it is no more
// than the engine takes.
std::uint64_t FastLimit::for_plan(const Profile& profile) const {
  if (grant_) {
    if (!grant_->admitted()) grant_->admit();
    const auto granted = grant_->bytes();
    if (options_.fast.percent > 0) return std::min(granted, share_of(peak_live_bytes(profile)));
    return options_.fast.bytes != 0 ? std::min(granted, options_.fast.bytes) : granted;
  }
  const bool settled = planned_.bytes || keeps_limit_ || within_cgroup_;
  if (settled && summary_.fast_limit_bytes != 0) return summary_.fast_limit_bytes;
  const auto asked =
      options_.fast.percent > 0 ? share_of(peak_live_bytes(profile)) : options_.fast.bytes;
  if (driver_) {
    const auto room = driver_->free_bytes() + engine_.counters().peak_bytes;
    const auto most = room - gpu::spare_of(room);
    if (options_.fast.unlimited()) return most;
    if (asked > most)
      voice_.say(
          fmt::format("--fast asks for {}; training goes on within {}, for the device has {} and "
                      "the program's libraries need some of it",
                      print_bytes(asked), print_bytes(most), print_bytes(room)));
    return std::min(asked, most);
  }
  if (!options_.fast.unlimited()) return options_.fast.percent > 0 ? within_room(asked) : asked;
  return options_.tiers.nodes ? free_bytes(options_.tiers.nodes->fast) : physical_bytes();
}

}  // namespace sentinel
