// Fills the status from the summary's last row, and from a plan where another one is followed.
#include "runtime/limit/publication.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/host/ranks.h"
#include "runtime/step/trial.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

StatusFigures figures_of(const StepRow& row) {
  return {.us = row.ms * 1e3,
          .stall_us = row.stall_ms * 1e3,
          .replay_us = row.replay_ms * 1e3,
          .in_bytes = row.promoted_bytes,
          .out_bytes = row.demoted_bytes,
          .faults = row.demand_faults,
          .replays = row.replays,
          .replayed_bytes = row.replayed_bytes,
          .read_bytes = row.reading.bytes,
          .written_bytes = row.writing.bytes,
          .read_us = row.reading.busy_us,
          .written_us = row.writing.busy_us};
}

void add(StatusFigures& to, const StatusFigures& more) {
  to.us += more.us;
  to.stall_us += more.stall_us;
  to.replay_us += more.replay_us;
  to.in_bytes += more.in_bytes;
  to.out_bytes += more.out_bytes;
  to.faults += more.faults;
  to.replays += more.replays;
  to.replayed_bytes += more.replayed_bytes;
  to.read_bytes += more.read_bytes;
  to.written_bytes += more.written_bytes;
  to.read_us += more.read_us;
  to.written_us += more.written_us;
}

bool leaves(Direction direction) {
  return direction == Direction::demote || direction == Direction::release ||
         direction == Direction::discard;
}

// What the plan does with one tensor: when it goes, and from when it has space again.
struct Change {
  std::uint32_t op;  // the first with / without it
  bool comes;
};

std::map<TensorId, std::vector<Change>> changes_of(const Plan& plan) {
  std::map<TensorId, std::vector<Change>> changes;
  for (const auto& birth : plan.births) changes[birth.tensor];
  for (const auto& move : plan.moves)
    if (move.direction == Direction::promote)
      changes[move.tensor].push_back({move.trigger.value, true});
    else if (leaves(move.direction))
      changes[move.tensor].push_back({move.deadline.value + 1, false});
  for (const auto& replay : plan.recomputations)
    for (const auto tensor : replay.keep) changes[tensor].push_back({replay.before.value, true});
  for (auto& [tensor, all] : changes) std::ranges::stable_sort(all, {}, &Change::op);
  return changes;
}

// One an op: what fast memory holds under the plan, as far as its moves tell.
std::vector<std::uint64_t> held_by(const Profile& profile, const Plan& plan,
                                   std::vector<std::uint64_t> held) {
  const auto lives = lifetimes(profile);
  // What leaves with each op, less what is back with it; unsigned sums come out right in the end.
  std::vector<std::uint64_t> leaving(held.size() + 1);
  const auto remove = [&](TensorId tensor, std::uint32_t from, std::uint32_t to) {
    const auto& life = lives[tensor.index()];
    const auto bytes = page_round(profile.tensors[tensor.index()].bytes);
    const auto first = std::max<std::size_t>(from, life.first_op.value);
    const auto end = std::min({std::size_t{to}, std::size_t{life.last_op.value} + 1, held.size()});
    if (first >= end) return;
    leaving[first] += bytes;
    leaving[end] -= bytes;
  };
  for (const auto& [tensor, changes] : changes_of(plan)) {
    std::uint32_t away_since = 0;
    bool away = changes.empty() || changes.front().comes;
    for (const auto& change : changes) {
      if (away && change.comes) remove(tensor, away_since, change.op);
      if (!away && !change.comes) away_since = change.op;
      away = !change.comes;
    }
    if (away) remove(tensor, away_since, static_cast<std::uint32_t>(held.size()));
  }
  std::uint64_t away = 0;
  for (std::size_t op = 0; op < held.size(); ++op) {
    away += leaving[op];
    held[op] -= std::min(held[op], away);
  }
  return held;
}

// The most of each share of the ops.
std::uint32_t fill_memory(const Profile& profile, const Plan& plan, std::span<StatusPoint> points) {
  const auto needed = live_bytes(profile);
  const auto held = held_by(profile, plan, needed);
  const auto count = std::min(points.size(), needed.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::ptrdiff_t>(i * needed.size() / count),
               last = static_cast<std::ptrdiff_t>((i + 1) * needed.size() / count);
    points[i] = {*std::max_element(needed.begin() + first, needed.begin() + last),
                 *std::max_element(held.begin() + first, held.begin() + last)};
  }
  return static_cast<std::uint32_t>(count);
}

std::vector<StatusTensor> moved_tensors(const Profile& profile, const Plan& plan) {
  std::map<TensorId, StatusTensor> found;
  const auto row = [&](TensorId tensor) -> StatusTensor& {
    const auto [at, fresh] = found.try_emplace(tensor);
    if (fresh) {
      at->second.name.set(profile.tensors[tensor.index()].name);
      at->second.bytes = profile.tensors[tensor.index()].bytes;
    }
    return at->second;
  };
  for (const auto& replay : plan.recomputations)
    for (const auto tensor : replay.keep) {
      row(tensor).remade = 1;
      row(tensor).returns = replay.before.value;
    }
  for (const auto& move : plan.moves) {
    const auto dropped = move.direction == Direction::discard;
    if (dropped && !found.contains(move.tensor)) continue;  // it is never used again
    if (leaves(move.direction) && row(move.tensor).times++ == 0)
      row(move.tensor).leaves = move.trigger.value;
    if (move.direction == Direction::promote) row(move.tensor).returns = move.deadline.value;
  }
  std::vector<StatusTensor> rows;
  for (auto& [tensor, one] : found) rows.push_back(one);
  std::ranges::stable_sort(rows, std::ranges::greater(), [](const StatusTensor& one) {
    return one.bytes * std::max<std::uint32_t>(one.times, 1);
  });
  return rows;
}

StatusPlan description(const Profile& profile, const Plan& plan) {
  StatusPlan told{};
  told.ops = static_cast<std::uint32_t>(profile.ops.size());
  told.us = plan.predicted_step_us;
  for (const auto& move : plan.moves)
    if (move.direction == Direction::promote)
      told.in_bytes += profile.tensors[move.tensor.index()].bytes;
    else if (move.direction == Direction::demote || move.direction == Direction::release)
      told.out_bytes += profile.tensors[move.tensor.index()].bytes;
  told.points = fill_memory(profile, plan, told.memory);
  const auto moved = moved_tensors(profile, plan);
  told.moved_tensors = static_cast<std::uint32_t>(moved.size());
  told.tensors = static_cast<std::uint32_t>(std::min(moved.size(), kStatusTensors));
  std::copy_n(moved.begin(), told.tensors, told.moves.begin());
  return told;
}

}  // namespace

const StatusPlan& DescribedPlans::of(std::uint32_t number, const Profile& profile,
                                     const Plan& plan) {
  const auto found = plans_.find(number);
  if (found != plans_.end()) return found->second;
  return plans_.emplace(number, description(profile, plan)).first->second;
}

void Publication::begin(const SessionOptions& options, const Summary& summary,
                        const std::string& framework) {
  page_ = StatusPage::make();
  if (!page_.is_open()) return;
  status_ = std::make_unique<Status>();
  const auto rank = rank_of_process();
  status_->program.command.set(options.command);
  status_->program.framework.set(framework);
  status_->program.policy.set(summary.policy);
  status_->program.fast.set(summary.tiers ? summary.tiers->fast : "memory");
  status_->program.slow.set(summary.tiers ? summary.tiers->slow : options.tiers.slow_directory);
  status_->program.rank = rank.rank.value_or(0);
  status_->program.ranks = rank.ranks;
  status_->program.began_us = status_->step_ended_us = now_us();
  page_.write(*status_);
}

void Publication::step_ended(const Summary& summary, const EngineCounters& counters) {
  if (!status_) return;
  const auto& row = summary.steps.back();
  status_->phase.set(row.phase);
  status_->program.policy.set(summary.policy);
  status_->last = figures_of(row);
  add(status_->total, status_->last);
  status_->history[status_->steps++ % kStatusHistory] = {
      static_cast<float>(status_->last.us), static_cast<float>(status_->last.stall_us)};
  status_->step_ended_us = now_us();
  status_->memory.limit_bytes = summary.fast_limit_bytes;
  status_->memory.held_bytes = counters.held_bytes;
  status_->memory.peak_bytes = counters.peak_bytes;
  status_->memory.unlimited_bytes = summary.peak_unlimited_bytes;
  status_->plan.kinds = static_cast<std::uint32_t>(summary.plans);
  page_.write(*status_);
}

void Publication::step_begins(const Bucket* bucket, bool paged, bool idle) {
  if (!status_) return;
  const auto guide = bucket != nullptr ? StatusGuide::plan
                     : paged           ? StatusGuide::pager
                                       : StatusGuide::none;
  const auto state = idle ? StatusState::left : StatusState::trains;
  const bool other = bucket != nullptr && bucket->space_plan() != shown_;
  if (!other && guide == status_->guide && state == status_->state) return;
  if (other) show(*bucket);
  status_->guide = guide;
  status_->state = state;
  page_.write(*status_);
}

void Publication::show(const Bucket& bucket) {
  const auto kinds = status_->plan.kinds;
  status_->plan = described_.of(bucket.space_plan(), bucket.profile(), bucket.plan());
  status_->plan.kinds = kinds;
  shown_ = bucket.space_plan();
}

void Publication::end() {
  if (!status_) return;
  status_->state = StatusState::over;
  page_.write(*status_);
  page_.remove();
}

}  // namespace sentinel
