// Sweeps over the step, evicts at ops that are too full, and extends gaps where there is room.
#include "plan/schedule/schedule.h"

#include <algorithm>
#include <queue>
#include <span>
#include <utility>

#include "plan/step/level.h"

namespace sentinel::plan {
namespace {

struct OpRange {  // [begin, end) of ops within one step
  std::uint32_t begin, end;
};
using OpRanges = std::vector<OpRange>;

// Positions [begin, end), at most one step long, as ops of one step.
OpRanges wrap(std::uint32_t begin, std::uint32_t end, std::uint32_t ops) {
  if (begin >= end) return {};
  if (begin >= ops) return {{begin - ops, end - ops}};
  if (end <= ops) return {{begin, end}};
  return {{0, end - ops}, {begin, ops}};
}

OpRanges common(const OpRanges& a, const OpRanges& b) {
  OpRanges result;
  for (const OpRange& x : a)
    for (const OpRange& y : b) {
      const OpRange both{std::max(x.begin, y.begin), std::min(x.end, y.end)};
      if (both.begin < both.end) result.push_back(both);
    }
  return result;
}

class GapScheduler {
 public:
  GapScheduler(const ScheduleInput& in, const Intervals& intervals);
  Schedule run();

 private:
  struct Idle {  // a resident, idle gap; the farthest next use first
    std::uint64_t distance;
    std::uint32_t gap;
    bool operator<(const Idle& other) const {
      return distance != other.distance ? distance < other.distance : gap > other.gap;
    }
  };

  void find_gaps();
  void add_gap(std::uint32_t storage, std::uint32_t use, std::uint32_t next, bool needed);
  bool overwritten(std::uint32_t storage, std::uint32_t position) const;
  std::uint32_t interval_target(const Gap&) const;
  void watch(std::uint32_t gap, std::uint32_t position);
  void evict_forced();
  void adopt_given(Gap&) const;
  void evict_given(std::uint32_t gap);
  void sweep();
  void close_streamed();
  void make_room(std::uint32_t op);
  void evict_at_once(std::uint32_t op);
  void extend(std::uint32_t gap, std::uint32_t position);
  void keep_what_fits();
  void promote_earlier();
  void change(const Gap&, std::uint32_t begin, std::uint32_t end, std::int64_t sign);
  std::span<const UnitId> freed_by(const Gap& gap) const {
    const TensorId tensor = in_.storages[gap.storage].tensor;
    return gap.remade ? in_.footprint.whole(tensor) : in_.footprint.units(tensor);
  }
  bool fits(std::uint32_t begin, std::uint32_t end) const;
  OpRanges absences(std::uint32_t storage, UnitId) const;
  bool resident(const Gap& gap, std::uint32_t position) const {
    return !gap.evicted || position < gap.out || position >= gap.in;
  }
  std::uint32_t position(const Gap& gap, std::uint32_t op) const {
    return op > gap.use || unused(gap) ? op : op + ops_;
  }
  bool unused(const Gap& gap) const { return in_.storages[gap.storage].uses.empty(); }
  bool over(std::uint32_t op) const { return held_.at(op) > static_cast<std::int64_t>(in_.limit); }
  void promote_earlier(Gap&);
  bool fetch_earlier(Gap&, std::uint32_t by);
  double idle_us(const Gap& gap) const;

  const ScheduleInput& in_;
  const Intervals& intervals_;
  std::uint32_t ops_;
  std::vector<bool> streamed_;
  Level held_;  // per op
  std::vector<Gap> gaps_;
  std::vector<std::vector<std::uint32_t>> gaps_of_;        // per storage
  std::vector<std::vector<std::uint32_t>> ends_at_;        // per op: gaps whose use it is
  std::vector<std::vector<Idle>> enters_;                  // per op
  std::vector<std::vector<std::uint32_t>> unit_storages_;  // per shared unit; empty: crowded
  std::priority_queue<Idle> idle_;
  std::vector<double> time_;  // prefix sums of op times
};

GapScheduler::GapScheduler(const ScheduleInput& in, const Intervals& intervals)
    : in_(in),
      intervals_(intervals),
      ops_(static_cast<std::uint32_t>(in.profile.ops.size())),
      streamed_(ops_, false),
      held_(in.demand.all),
      gaps_of_(in.storages.size()),
      ends_at_(ops_),
      enters_(ops_),
      unit_storages_(in.footprint.size()),
      time_(ops_ + 1, 0) {
  for (std::uint32_t k = 0; k < ops_; ++k) {
    streamed_[k] = in.demand.must[k] > in.limit;
    time_[k + 1] = time_[k] + in.profile.ops[k].us;
  }
  for (std::uint32_t i = 0; i < in.storages.size(); ++i)
    for (UnitId u : in.footprint.units(in.storages[i].tensor))
      if (in.footprint.members(u).size() <= kCrowd) unit_storages_[u.index()].push_back(i);
}

void GapScheduler::find_gaps() {
  for (std::uint32_t i = 0; i < in_.storages.size(); ++i) {
    const Storage& s = in_.storages[i];
    if (!in_.movable[i]) continue;
    if (s.uses.empty()) {
      add_gap(i, 0, ops_, false);
      continue;
    }
    for (std::size_t u = 0; u + 1 < s.uses.size(); ++u) add_gap(i, s.uses[u], s.uses[u + 1], true);
    if (s.persistent)
      add_gap(i, s.uses.back(), s.uses.front() + ops_, true);
    else
      add_gap(i, s.uses.back(), s.last + 1, false);
  }
}

void GapScheduler::add_gap(std::uint32_t storage, std::uint32_t use, std::uint32_t next,
                           bool needed) {
  Gap gap{.storage = storage, .use = use, .next = next, .needed = needed};
  gap.unfetched = needed && (streamed_[next % ops_] || overwritten(storage, next));
  gap.forced = !unused(gap) && streamed_[use % ops_] && next > use + 1;
  if (next <= use + 1 && !(streamed_[use % ops_] && needed)) return;
  gap.target = needed && !gap.unfetched ? interval_target(gap) : next;
  adopt_given(gap);
  const auto id = static_cast<std::uint32_t>(gaps_.size());
  gaps_.push_back(gap);
  gaps_of_[storage].push_back(id);
  if (!unused(gap)) ends_at_[use % ops_].push_back(id);
}

void GapScheduler::adopt_given(Gap& gap) const {
  const auto key = [](const GivenGap& g) { return std::pair(g.storage, g.use); };
  const auto found = std::ranges::lower_bound(in_.given, std::pair(gap.storage, gap.use), {}, key);
  if (found == in_.given.end() || key(*found) != std::pair(gap.storage, gap.use)) return;
  gap.given = true;
  gap.tier = found->tier;
  gap.cost = found->cost;
  gap.remade = found->remade && gap.needed && !gap.unfetched && !gap.forced;
  if (gap.remade) {
    gap.in = gap.target = gap.next;
    return;
  }
  gap.in = gap.needed && !gap.unfetched ? found->in : gap.next;
  gap.target = std::min(gap.target, gap.in);
}

// What shares a granule has to be fetched for the others' sake.
bool GapScheduler::overwritten(std::uint32_t storage, std::uint32_t position) const {
  const Storage& s = in_.storages[storage];
  if (std::ranges::binary_search(in_.replay_reads, ReplayRead{storage, position})) return false;
  const auto alone = [&](UnitId u) { return in_.footprint.members(u).size() == 1; };
  return in_.overwritten_unfetched && !reads(in_.profile, s, position) &&
         std::ranges::all_of(in_.footprint.units(s.tensor), alone);
}

// The start of the interval before the one that needs it (paper, IV-D), within the gap.
std::uint32_t GapScheduler::interval_target(const Gap& gap) const {
  const std::uint32_t op = gap.next % ops_, lap = gap.next - op;
  const std::uint32_t interval = intervals_.of(op);
  const std::uint32_t start =
      interval > 0 ? lap + intervals_.first_op(interval - 1)
                   : lap + intervals_.first_op(intervals_.size() - 1) - std::min(lap, ops_);
  const bool reaches_back = interval > 0 || lap > 0;
  return std::max(reaches_back ? start : 0, gap.use + 1);
}

// From `position` on the gap is resident and idle: a candidate of the sweep. A gap that crosses the
// step's end is met in both parts of the sweep.
void GapScheduler::watch(std::uint32_t id, std::uint32_t position) {
  const Gap& gap = gaps_[id];
  const std::uint64_t never = gap.needed ? 0 : 2ull * ops_;
  const auto enter = [&](std::uint32_t from, std::uint32_t lap) {
    enters_[from - lap].push_back({gap.next - lap + never, id});
  };
  if (position >= gap.next) return;
  enter(position, position < ops_ ? 0 : ops_);
  if (position < ops_ && gap.next > ops_) enter(ops_, ops_);
}

// A streamed op leaves its tensors scattered: they are away until their next use.
void GapScheduler::evict_forced() {
  for (std::uint32_t id = 0; id < gaps_.size(); ++id) {
    Gap& gap = gaps_[id];
    const bool forced = gap.forced || (gap.needed && streamed_[gap.use % ops_] && !unused(gap));
    if (!forced && gap.given) {
      evict_given(id);
      continue;
    }
    if (!forced) {
      watch(id, unused(gap) ? 0 : gap.use + 2);
      continue;
    }
    gap.evicted = gap.forced = true;
    gap.out = gap.use + 1;
    gap.in = std::max(gap.target, gap.out);
    change(gap, gap.out, gap.in, -1);
    watch(id, gap.in);
  }
}

void GapScheduler::evict_given(std::uint32_t id) {
  Gap& gap = gaps_[id];
  gap.evicted = true;
  gap.out = std::min(gap.use + (gap.remade ? 1 : 2), gap.next);
  gap.in = std::clamp(gap.in, gap.out, gap.next);
  change(gap, gap.out, gap.in, -1);
  watch(id, gap.in);
}

// Adds (sign 1) or removes (-1) what the gap's storage alone keeps in fast memory during [begin,
// end): the granules that every other tensor in them has left or never entered.
void GapScheduler::change(const Gap& gap, std::uint32_t begin, std::uint32_t end,
                          std::int64_t sign) {
  const OpRanges window = wrap(begin, end, ops_);
  if (window.empty()) return;
  for (UnitId u : freed_by(gap)) {
    const auto& sharing = unit_storages_[u.index()];
    OpRanges alone = sharing.empty() ? OpRanges{} : window;
    for (std::uint32_t other : sharing)
      if (other != gap.storage && !alone.empty()) alone = common(alone, absences(other, u));
    const std::int64_t bytes = sign * static_cast<std::int64_t>(in_.footprint.bytes(u));
    for (const OpRange& r : alone) held_.add(r.begin, r.end, bytes);
  }
}

// Where a storage does not hold the unit: before and after its life, and while evicted.
OpRanges GapScheduler::absences(std::uint32_t storage, UnitId unit) const {
  const Storage& s = in_.storages[storage];
  OpRanges result;
  if (!s.persistent) result = wrap(s.last + 1, s.first + ops_, ops_);
  for (std::uint32_t id : gaps_of_[storage]) {
    const Gap& gap = gaps_[id];
    if (!gap.evicted || (gap.remade && !in_.footprint.is_whole(s.tensor, unit))) continue;
    const OpRanges away = wrap(gap.out, gap.in, ops_);
    result.insert(result.end(), away.begin(), away.end());
  }
  return result;
}

bool GapScheduler::fits(std::uint32_t begin, std::uint32_t end) const {
  return held_.most(begin, end) <= static_cast<std::int64_t>(in_.limit);
}

void GapScheduler::sweep() {
  for (std::uint32_t k = 0; k < ops_; ++k) {
    for (const Idle& entry : enters_[k]) idle_.push(entry);
    if (!over(k)) continue;
    make_room(k);
    if (over(k)) evict_at_once(k);
  }
}

// During a streamed op nothing that left may stay after all: the op needs every granule.
void GapScheduler::close_streamed() {
  for (std::uint32_t k = 0; k < ops_; ++k)
    if (streamed_[k]) held_.add(k, k + 1, static_cast<std::int64_t>(in_.limit) - held_.at(k));
}

void GapScheduler::make_room(std::uint32_t op) {
  while (over(op) && !idle_.empty()) {
    const std::uint32_t id = idle_.top().gap;
    idle_.pop();
    const Gap& gap = gaps_[id];
    const std::uint32_t at = position(gap, op);
    if (at < gap.next && resident(gap, at)) extend(id, at);
  }
}

// What the previous op used holds its space through this one, unless its write is waited for.
void GapScheduler::evict_at_once(std::uint32_t op) {
  const auto& ended = ends_at_[(op + ops_ - 1) % ops_];
  std::vector<std::uint32_t> order(ended.begin(), ended.end());
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto distance = [&](const Gap& g) { return g.needed ? g.next - g.use : 2 * ops_; };
    return distance(gaps_[a]) > distance(gaps_[b]);
  });
  for (std::uint32_t id : order) {
    if (!over(op)) return;
    const Gap& gap = gaps_[id];
    if (resident(gap, gap.use + 1) && gap.next > gap.use + 1) extend(id, gap.use + 1);
  }
}

// Makes the gap absent at `position`, and as long around it as the rules allow.
void GapScheduler::extend(std::uint32_t id, std::uint32_t position) {
  Gap& gap = gaps_[id];
  const std::uint32_t out = unused(gap) ? 0 : position == gap.use + 1 ? position : gap.use + 2;
  if (!gap.evicted) {
    gap.in = std::min(gap.next, std::max(gap.target, position + 1));
    gap.out = out;
    change(gap, gap.out, gap.in, -1);
  } else if (position < gap.out) {  // waited for, instead of written during one more op
    change(gap, position, gap.out, -1);
    gap.out = position;
  } else {
    // Put off, by an eighth of the delay so far, so that a long shortage is crossed in few steps;
    // promote_earlier() takes back what was too much.
    const std::uint32_t delay = position - std::min(position, gap.target);
    const std::uint32_t in = std::min(gap.next, position + 1 + delay / 8);
    change(gap, gap.in, in, -1);
    gap.in = in;
  }
  gap.evicted = true;
  watch(id, gap.in);
}

double GapScheduler::idle_us(const Gap& gap) const {
  const auto at = [&](std::uint32_t p) { return time_[p % ops_] + p / ops_ * time_[ops_]; };
  return at(gap.next) - at(gap.use);
}

// Some evictions turn out not to be needed: a later one freed the same ops too. The dearest and
// shortest gaps cost most for what they free, so they are taken back first.
void GapScheduler::keep_what_fits() {
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = 0; id < gaps_.size(); ++id)
    if (gaps_[id].evicted && !gaps_[id].forced) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return idle_us(gaps_[a]) * gaps_[b].cost < idle_us(gaps_[b]) * gaps_[a].cost;
  });
  for (std::uint32_t id : order) {
    Gap& gap = gaps_[id];
    gap.evicted = false;
    change(gap, gap.out, gap.in, 1);
    if (fits(gap.out, gap.in)) continue;
    change(gap, gap.out, gap.in, -1);
    gap.evicted = true;
  }
}

// Room that later evictions made lets promotions move back towards the interval's start.
void GapScheduler::promote_earlier() {
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = 0; id < gaps_.size(); ++id)
    if (gaps_[id].evicted && gaps_[id].needed && !gaps_[id].unfetched && !gaps_[id].remade)
      order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (gaps_[a].next != gaps_[b].next) return gaps_[a].next < gaps_[b].next;
    return in_.storages[gaps_[a].storage].accesses > in_.storages[gaps_[b].storage].accesses;
  });
  for (std::uint32_t id : order) promote_earlier(gaps_[id]);
}

// As far as there is room at every op: in steps that double until one is too far, then halve.
void GapScheduler::promote_earlier(Gap& gap) {
  bool doubling = true;
  for (std::uint32_t step = 1; step > 0 && gap.in > std::max(gap.target, gap.out);) {
    const bool done = fetch_earlier(gap, std::min(step, gap.in - std::max(gap.target, gap.out)));
    doubling = doubling && done;
    step = doubling ? 2 * step : step / 2;
  }
}

bool GapScheduler::fetch_earlier(Gap& gap, std::uint32_t by) {
  change(gap, gap.in - by, gap.in, 1);
  const bool room = fits(gap.in - by, gap.in);
  if (room)
    gap.in -= by;
  else
    change(gap, gap.in - by, gap.in, -1);
  return room;
}

Schedule GapScheduler::run() {
  find_gaps();
  evict_forced();
  sweep();
  close_streamed();
  keep_what_fits();
  promote_earlier();
  Schedule result;
  for (const Gap& gap : gaps_)
    if (gap.evicted && (gap.forced || gap.out < gap.in)) result.gaps.push_back(gap);
  for (std::uint32_t k = 0; k < ops_; ++k)
    result.held.push_back(static_cast<std::uint64_t>(held_.at(k)));
  for (std::uint32_t k = 0; k < ops_; ++k)
    if (streamed_[k]) {
      result.held[k] = in_.limit;
      result.streamed.push_back(k);
    }
  return result;
}

}  // namespace

Schedule schedule(const ScheduleInput& in, const Intervals& intervals) {
  return GapScheduler(in, intervals).run();
}

}  // namespace sentinel::plan
