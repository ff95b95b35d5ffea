// Swaps, recomputes and delays the gaps of one job, and makes its plan.
#include "plan/policies/tensile/job.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "plan/check/verify.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"

namespace sentinel::plan::tensile {
namespace {

constexpr std::uint32_t kMostTries = 8;  // to swap in one gap, for different peaks

}  // namespace

Job::Job(const ScheduledJob& job, const Machine& machine, const PlanOptions& options,
         std::uint32_t index)
    : job_(job),
      machine_(machine),
      options_(options),
      index_(index),
      time_(1, 0),
      absences_(*job.profile, machine),
      idle_(absences_.ops()),
      gap_states_(absences_.gaps().size(), GapState::open),
      tries_(absences_.gaps().size()),
      swaps_(absences_.gaps().size()),
      touched_(absences_.storages().size(), false),
      refused_(absences_.gaps().size(), false),
      of_(job.profile->tensors.size(), UINT32_MAX),
      stored_(machine.tiers.size(), 0),
      tier_of_(absences_.storages().size(), 0),
      replay_(*job.profile) {
  for (double us : job.op_us) time_.push_back(time_.back() + us);
  const auto& storages = absences_.storages();
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    of_[storages[i].tensor.index()] = i;
    if (storages[i].carried) of_[storages[i].carried->index()] = i;
  }
  const bool across = uses(options, kAcrossSteps);
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g) {
    const IdleGap& gap = absences_.gaps()[g];
    if (absences_.bytes(g) == 0 || (!across && gap.next >= absences_.ops()))
      gap_states_[g] = GapState::refused;
    else
      idle_.add(gap.use + 1, gap.next, static_cast<double>(absences_.bytes(g)), g);
  }
}

double Job::time(std::uint32_t position) const {
  return time_[position % absences_.ops()] + position / absences_.ops() * step_us();
}

std::uint32_t Job::position(double at_us) const {
  const std::uint32_t lap = at_us + rounding_us() >= step_us() ? 1 : 0;
  const double within = at_us + rounding_us() - lap * step_us();
  const auto next = std::ranges::upper_bound(time_.begin(), time_.end() - 1, within);
  return lap * absences_.ops() + static_cast<std::uint32_t>(next - time_.begin()) - 1;
}

std::uint32_t Job::last_held(double end_us) const { return position(end_us - 3 * rounding_us()); }

std::optional<std::uint32_t> Job::largest_at_peak() {
  const std::uint32_t peak = absences_.peak_op();
  return idle_.heaviest(
      peak, [&](std::uint32_t g) { return gap_states_[g] != GapState::open; },
      [&](std::uint32_t g) { return tries_[g].peak_op == peak; });
}

bool Job::dirty(std::uint32_t gap) const {
  return absences_.dirty(gap, [&](std::uint32_t g) { return gap_states_[g] == GapState::swapped; });
}

double Job::transfer_us(std::uint32_t gap, std::uint32_t from, std::uint32_t to) const {
  return machine_.tiers[std::max(from, to)].latency_us +
         static_cast<double>(absences_.gaps()[gap].bytes) / rate(machine_, from, to);
}

// The host, until it is full.
std::optional<std::uint32_t> Job::tier_for(std::uint32_t storage) const {
  if (tier_of_[storage] != 0) return tier_of_[storage];
  for (std::uint32_t t = 1; t < machine_.tiers.size(); ++t)
    if (machine_.tiers[t].capacity == 0 ||
        stored_[t] + absences_.storages()[storage].bytes <= machine_.tiers[t].capacity)
      return t;
  return std::nullopt;
}

// Out as early as the channel allows, in as late (section 4.1).
bool Job::place(std::uint32_t g, bool copy, Region out, Region in, Channel& channel) {
  const IdleGap& gap = absences_.gaps()[g];
  const auto tier = tier_for(gap.storage);
  if (!tier) return false;
  const double out_us = copy ? transfer_us(g, 0, *tier) : 0, in_us = transfer_us(g, *tier, 0);
  const auto leaves = copy ? channel.earliest(index_, out.from, out.to, out_us) : out.from;
  if (!leaves) return false;
  const auto comes = channel.latest(index_, std::max(in.from, *leaves + out_us), in.to, in_us);
  if (!comes) return false;
  const std::uint32_t away = copy ? last_held(*leaves + out_us) + 1 : gap.use + 1;
  const std::uint32_t back = std::min(position(*comes), gap.next);
  if (away >= back) return false;
  if (copy) channel.book(index_, *leaves, out_us);
  channel.book(index_, *comes, in_us);
  absences_.leave(g, away, back);
  swaps_[g] = {*leaves, *leaves + out_us, *comes};
  gap_states_[g] = GapState::swapped;
  if (tier_of_[gap.storage] == 0) {
    tier_of_[gap.storage] = *tier;
    stored_[*tier] += gap.bytes;
    ++swapped_;
  }
  return touched_[gap.storage] = true;
}

bool Job::swap(std::uint32_t g, Channel& channel) {
  const IdleGap& gap = absences_.gaps()[g];
  if (!gap.needed) {
    gap_states_[g] = GapState::released;
    touched_[gap.storage] = true;
    absences_.leave(g, gap.use + 1, gap.next);
    return true;
  }
  const std::uint32_t peak = absences_.position(g, absences_.peak_op());
  const Region out{time(gap.use + 1), time(peak)}, in{time(peak + 1), time(gap.next)};
  if (!place(g, dirty(g), out, in, channel)) {
    tries_[g] = {tries_[g].times + 1, absences_.peak_op()};
    if (tries_[g].times == kMostTries) gap_states_[g] = GapState::refused;
    return false;
  }
  swap_other_gaps(g, channel);
  return true;
}

// The copy in the host stays until the tensor's last access, so that leaving again costs nothing;
// but on exclusive tiers.
void Job::swap_other_gaps(std::uint32_t g, Channel& channel) {
  if (machine_.exclusive) return;
  const auto [first, last] = absences_.gaps_of(absences_.gaps()[g].storage);
  const bool cyclic = absences_.storage_of(g).persistent;
  bool written = false;
  for (std::uint32_t i = 1; i < last - first; ++i) {
    const std::uint32_t other = first + (g - first + i) % (last - first);
    if (other < g && !cyclic) return;
    const IdleGap& gap = absences_.gaps()[other];
    written |= absences_.written(other);
    const double from = time(gap.use + 1);
    if (gap_states_[other] == GapState::open && gap.needed && !written)
      place(other, false, {from, from}, {from, time(gap.next)}, channel);
    if (gap_states_[other] == GapState::swapped) written = false;
  }
}

// What has never been given up, and is alive.
std::vector<Recompute> Job::chain(std::uint32_t g) const {
  const IdleGap& gap = absences_.gaps()[g];
  const OpId before(gap.next);
  const auto available = [&](TensorId t) {
    const std::uint32_t i = of_[t.index()];
    if (i == UINT32_MAX) return true;
    const Storage& s = absences_.storages()[i];
    return i != gap.storage && !touched_[i] &&
           (s.persistent || (s.first <= gap.next && s.last >= gap.next));
  };
  const TensorId wanted = absences_.storages()[gap.storage].at(gap.next, absences_.ops());
  return replay_chain(profile(), replay_, wanted, before, available);
}

bool Job::may_recompute(std::uint32_t g) const {
  const IdleGap& gap = absences_.gaps()[g];
  return !refused_[g] && gap.needed && gap.next < absences_.ops() &&
         !absences_.storages()[gap.storage].persistent && !touched_[gap.storage] &&
         absences_.bytes(g) > 0;
}

// MSPS, memory saved per second of recomputation.
void Job::rank_recomputation() {
  by_value_.emplace(absences_.ops());
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g) {
    if (!may_recompute(g)) continue;
    double us = 0;
    const auto replays = chain(g);
    for (const auto& r : replays) us += job_.op_us[r.op.index()];
    const auto saved = static_cast<double>(absences_.bytes(g));
    if (!replays.empty())
      by_value_->add(absences_.gaps()[g].use + 1, absences_.gaps()[g].next,
                     us > 0 ? saved / us : std::numeric_limits<double>::max(), g);
  }
}

bool Job::recompute() {
  if (!by_value_) rank_recomputation();
  while (const auto gap = by_value_->heaviest(absences_.peak_op(),
                                              [&](std::uint32_t g) { return !may_recompute(g); })) {
    if (recompute(*gap)) return true;
    refused_[*gap] = true;
  }
  return false;
}

// What it is made of must not be given up in turn.
bool Job::recompute(std::uint32_t g) {
  const auto replays = chain(g);
  if (replays.empty()) return false;
  const IdleGap& gap = absences_.gaps()[g];
  const std::uint64_t extra = replay_bytes(profile(), replays, machine_.granule_bytes);
  if (absences_.held(gap.next) + extra >= absences_.peak()) return false;
  absences_.leave(g, gap.use + 1, gap.next);
  absences_.hold_more(gap.next, extra);
  gap_states_[g] = GapState::recomputed;
  touched_[gap.storage] = true;
  for (const Recompute& r : replays) {
    const auto& in = profile().ops[r.op.index()].in;
    absences_.need_back(in, gap.next);
    for (TensorId t : in)
      if (of_[t.index()] != UINT32_MAX) touched_[of_[t.index()]] = true;
  }
  return true;
}

void Job::give_way(std::uint64_t limit) {
  if (fits(limit)) return;
  waits_ = true;
  std::vector<bool> closed(gap_states_.size(), false);
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g) {
    closed[g] = absences_.bytes(g) == 0 || gap_states_[g] == GapState::released ||
                gap_states_[g] == GapState::recomputed;
  }
  for (std::uint32_t g : plan::give_way(absences_, limit, closed))
    gap_states_[g] = GapState::waited;
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g)
    if (gap_states_[g] == GapState::swapped && !absences_.away(g)) gap_states_[g] = GapState::open;
}

std::vector<Decision> Job::decisions() const {
  std::vector<Decision> all;
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g) {
    const IdleGap& gap = absences_.gaps()[g];
    if (gap_states_[g] == GapState::open || gap_states_[g] == GapState::refused) continue;
    Decision d{.storage = gap.storage,
               .use = gap.use,
               .next = gap.next,
               .remedy = gap_states_[g] == GapState::recomputed ? Remedy::recompute : Remedy::swap,
               .tier = std::max(1u, tier_of_[gap.storage]),
               .fetch = gap.next};
    if (gap_states_[g] == GapState::swapped) {
      d.fetch = absences_.in(g);
      if (!waits_) d.in_delay_us = std::max(0.0, swaps_[g].in_us - time(d.fetch));
    }
    all.push_back(d);
  }
  return all;
}

// A write that begins later than right after the use is triggered by the op that ends before it.
void Job::put_off_writes(Plan& plan) const {
  std::map<std::pair<TensorId, OpId>, std::uint32_t> swapped;  // by tensor and last use
  const std::uint32_t ops = absences_.ops();
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g) {
    const std::uint32_t use = absences_.gaps()[g].use;
    if (gap_states_[g] == GapState::swapped && swaps_[g].out_end_us > swaps_[g].out_us)
      swapped[{absences_.storage_of(g).at(use, ops), OpId(use % ops)}] = g;
  }
  for (Move& m : plan.moves) {
    const auto found = swapped.find({m.tensor, m.trigger});
    if (m.direction != Direction::demote || found == swapped.end()) continue;
    const std::uint32_t g = found->second;
    const std::uint32_t begins = position(swaps_[g].out_us), trigger = begins - 1;
    m.tensor = absences_.storage_of(g).at(trigger, ops);
    m.trigger = OpId(trigger % ops);
    m.deadline = OpId((absences_.out(g) - 1) % ops);
    m.delay_us = std::max(0.0, swaps_[g].out_us - time(begins));
  }
  std::ranges::stable_sort(plan.moves, {}, [](const Move& m) {
    return std::tuple(m.trigger, m.direction == Direction::promote, m.delay_us);
  });
}

Plan Job::plan(std::uint64_t limit) const {
  PlanOptions own = options_;
  own.fast_bytes = waits_ ? limit : peak();
  Plan plan = decided_plan("tensile", profile(), machine_, own, decisions()).plan;
  plan.fast_bytes = limit;
  plan.peak_fast_bytes = std::max(plan.peak_fast_bytes, peak());
  if (!waits_) {
    // Where writes that begin late hold more than was reckoned here, in rare shapes of steps, all
    // are triggered by their last uses.
    Plan late = plan;
    put_off_writes(late);
    if (verify(late, profile()).empty()) return late;
  }
  for (std::uint32_t g = 0; g < gap_states_.size(); ++g)
    if (gap_states_[g] == GapState::waited && absences_.gaps()[g].needed)
      plan.predicted_step_us +=
          transfer_us(g, std::max(1u, tier_of_[absences_.gaps()[g].storage]), 0);
  return plan;
}

}  // namespace sentinel::plan::tensile
