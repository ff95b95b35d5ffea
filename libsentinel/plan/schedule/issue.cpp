// Orders moves by the ops that issue them, and predicts the step's time with them.
#include "plan/schedule/issue.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "plan/step/level.h"
#include "plan/step/rates.h"

namespace sentinel::plan {

TierRates tier_rates(const Machine& machine) {
  TierRates rates{{0}, {0}};
  for (std::uint32_t t = 1; t < machine.tiers.size(); ++t) {
    rates.in.push_back(rate(machine, t, 0));
    rates.out.push_back(rate(machine, 0, t));
  }
  return rates;
}

IssueLists issue_lists(const ScheduleInput& in, const Schedule& schedule,
                       const Intervals& intervals, bool in_place) {
  const auto ops = static_cast<std::uint32_t>(in.profile.ops.size());
  IssueLists lists{std::vector<std::vector<std::uint32_t>>(ops),
                   std::vector<std::vector<std::uint32_t>>(ops)};
  for (std::uint32_t g = 0; g < schedule.gaps.size(); ++g) {
    const Gap& gap = schedule.gaps[g];
    if (gap.out < gap.in) lists.demote[gap.use % ops].push_back(g);
    if (gap.needed && !gap.unfetched && !gap.remade) lists.promote[gap.in % ops].push_back(g);
  }
  for (std::uint32_t k = 0; k < ops; ++k)
    std::stable_sort(lists.promote[k].begin(), lists.promote[k].end(), [&](auto a, auto b) {
      const auto key = [&](const Gap& gap) {
        const std::uint32_t until = gap.next - gap.in;  // distance in ops
        const auto laps =
            static_cast<std::uint32_t>(intervals.size()) * (gap.next / ops - gap.in / ops);
        const std::uint32_t interval = laps + intervals.of(gap.next % ops);
        const std::uint64_t cold = UINT64_MAX - in.storages[gap.storage].accesses;
        return in_place ? std::tuple(std::uint64_t{interval}, cold, std::uint64_t{until})
                        : std::tuple(std::uint64_t{until}, cold, std::uint64_t{0});
      };
      return key(schedule.gaps[a]) < key(schedule.gaps[b]);
    });
  return lists;
}

std::vector<bool> clean_gaps(const ScheduleInput& in, const Schedule& schedule,
                             const Writes& writes, bool exclusive) {
  const auto ops = static_cast<std::uint32_t>(in.profile.ops.size());
  std::vector<std::vector<std::uint32_t>> by_storage(in.storages.size());
  for (std::uint32_t g = 0; g < schedule.gaps.size(); ++g)
    by_storage[schedule.gaps[g].storage].push_back(g);
  std::vector<bool> clean(schedule.gaps.size(), false);
  if (exclusive) return clean;
  for (std::size_t i = 0; i < by_storage.size(); ++i) {
    const auto& mine = by_storage[i];
    const Storage& s = in.storages[i];
    for (std::size_t at = 0; at < mine.size(); ++at) {
      if (at == 0 && !s.persistent) continue;  // written by the op that made it
      const Gap& gap = schedule.gaps[mine[at]];
      const Gap& before = schedule.gaps[mine[at == 0 ? mine.size() - 1 : at - 1]];
      if (gap.remade || before.remade) continue;
      const std::uint32_t lap = at == 0 ? ops : 0;
      const auto unwritten = [&](std::uint32_t from, std::uint32_t to) {
        const auto begin = std::ranges::lower_bound(s.uses, from);
        const auto end = std::upper_bound(begin, s.uses.end(), to);
        return std::none_of(
            begin, end, [&](std::uint32_t use) { return writes(s.at(use, ops), OpId(use % ops)); });
      };
      clean[mine[at]] = unwritten(before.next - std::min(before.next, lap), gap.use) &&
                        (lap == 0 || unwritten(before.next, gap.use + lap));
    }
  }
  return clean;
}

namespace {

class Timeline {
 public:
  Timeline(const ScheduleInput& in, const Schedule& schedule, const IssueLists& lists,
           const std::vector<bool>& clean, const std::vector<std::uint32_t>& tiers,
           const TierRates& rates)
      : in_(in),
        schedule_(schedule),
        lists_(lists),
        clean_(clean),
        tiers_(tiers),
        rates_(rates),
        due_(in.profile.ops.size()),
        arrival_(schedule.gaps.size(), 0),
        in_free_(rates.in.size(), 0),
        out_free_(rates.out.size(), 0) {
    for (std::uint32_t g = 0; g < schedule.gaps.size(); ++g)
      if (schedule.gaps[g].needed) due_[schedule.gaps[g].next % due_.size()].push_back(g);
  }

  double step() {
    const double begin = now_;
    for (std::size_t k = 0; k < due_.size(); ++k) {
      start_promotions(k);
      for (std::uint32_t g : due_[k]) now_ = std::max(now_, arrival_[g]);
      wait_for_space(k);
      now_ += op_us(k);
      start_demotions(k);
    }
    return now_ - begin;
  }

 private:
  std::uint32_t tier(std::uint32_t g) const { return tier_of(schedule_.gaps[g], tiers_); }
  std::uint64_t bytes(std::uint32_t g) const {
    return in_.storages[schedule_.gaps[g].storage].bytes;
  }

  // A streamed op takes at least the time to read its working set.
  double op_us(std::size_t k) const {
    const double us = in_.profile.ops[k].us;
    const auto working_set = in_.demand.must[k];
    return working_set <= in_.limit ? us
                                    : std::max(us, static_cast<double>(working_set) / rates_.in[1]);
  }

  void start_promotions(std::size_t k) {
    for (std::uint32_t g : lists_.promote[k]) {
      double& free = in_free_[tier(g)];
      free = std::max(free, now_) + static_cast<double>(bytes(g)) / rates_.in[tier(g)];
      arrival_[g] = free;
    }
  }

  void start_demotions(std::size_t k) {
    recent_ = 0;
    for (std::uint32_t g : lists_.demote[k]) {
      const Gap& gap = schedule_.gaps[g];
      if (clean_[g] || gap.remade) continue;
      if (gap.out > gap.use + 1) recent_ += bytes(g);
      double& free = out_free_[tier(g)];
      free = std::max(free, now_) + static_cast<double>(bytes(g)) / rates_.out[tier(g)];
      writes_.insert({free, bytes(g)});
      unwritten_ += bytes(g);
    }
  }

  void wait_for_space(std::size_t k) {
    while (!writes_.empty() && (writes_.begin()->first <= now_ ||
                                schedule_.held[k] + unwritten_ > in_.limit + recent_)) {
      now_ = std::max(now_, writes_.begin()->first);
      unwritten_ -= writes_.begin()->second;
      writes_.erase(writes_.begin());
    }
  }

  const ScheduleInput& in_;
  const Schedule& schedule_;
  const IssueLists& lists_;
  const std::vector<bool>& clean_;
  const std::vector<std::uint32_t>& tiers_;
  const TierRates& rates_;
  std::vector<std::vector<std::uint32_t>> due_;  // per op: gaps that end there
  std::vector<double> arrival_;
  std::vector<double> in_free_, out_free_;       // per tier: when its queue is empty
  std::multimap<double, std::uint64_t> writes_;  // bytes by time of completion
  std::uint64_t unwritten_ = 0;
  std::uint64_t recent_ = 0;  // of these, what `held` still counts during the next op
  double now_ = 0;
};

}  // namespace

double predicted_step_us(const ScheduleInput& in, const Schedule& schedule, const IssueLists& lists,
                         const std::vector<bool>& clean, const std::vector<std::uint32_t>& tiers,
                         const TierRates& rates) {
  Timeline timeline(in, schedule, lists, clean, tiers, rates);
  timeline.step();
  return timeline.step();
}

namespace {

class TierChoice {
 public:
  TierChoice(const ScheduleInput& in, const Schedule& schedule, const Machine& machine)
      : in_(in),
        machine_(machine),
        ops_(static_cast<std::uint32_t>(in.profile.ops.size())),
        gaps_(in.storages.size()),
        tiers_(in.storages.size(), 1),
        filled_(machine.tiers.size() - 1, Level(std::vector<std::uint64_t>(ops_, 0))),
        share_(machine.tiers.size(), 0),
        dealt_(machine.tiers.size(), 0) {
    for (const Gap& gap : schedule.gaps) {
      if (gap.remade) continue;
      if (gaps_[gap.storage].empty()) order_.push_back(gap.storage);
      gaps_[gap.storage].push_back(&gap);
    }
    std::ranges::stable_sort(order_, {}, [&](std::uint32_t s) { return gaps_[s].front()->use; });
    find_shares();
  }

  std::vector<std::uint32_t> run() {
    for (std::uint32_t s : order_) {
      std::uint32_t& best = tiers_[s];
      best = last();
      for (std::uint32_t t = 1; t < last(); ++t)
        if (share_[t] > 0 && load(t) <= load(best) && fits(s, t)) best = t;
      dealt_[best] += static_cast<double>(bytes(s));
      if (best == last()) continue;  // takes what fits nowhere else, however much
      for_each_time_away(s, [&](std::uint32_t begin, std::uint32_t end) {
        filled_[best].add(begin, end, static_cast<std::int64_t>(bytes(s)));
      });
    }
    return std::move(tiers_);
  }

 private:
  std::uint32_t last() const { return static_cast<std::uint32_t>(machine_.tiers.size() - 1); }
  std::uint64_t bytes(std::uint32_t s) const { return in_.storages[s].bytes; }
  std::uint64_t capacity(std::uint32_t t) const {
    return t == last() || machine_.tiers[t].capacity == 0 ? UINT64_MAX / 2
                                                          : machine_.tiers[t].capacity;
  }

  // Calls visit(begin, end) with the ops [begin, end) during which a copy is needed: it is written
  // from the last use on and read until the next.
  template <class Visit>
  void for_each_time_away(std::uint32_t storage, Visit visit) const {
    for (const Gap* gap : gaps_[storage]) {
      if (gap->use < ops_) visit(gap->use, std::min(gap->next, ops_));
      if (gap->next > ops_) visit(std::max(gap->use, ops_) - ops_, gap->next - ops_);
    }
  }

  // The fastest tier's share of what is away at the fullest op, then the next one's of the rest.
  void find_shares() {
    std::vector<std::int64_t> change(ops_ + 1, 0);
    for (std::uint32_t s : order_)
      for_each_time_away(s, [&](std::uint32_t begin, std::uint32_t end) {
        change[begin] += static_cast<std::int64_t>(bytes(s));
        change[end] -= static_cast<std::int64_t>(bytes(s));
      });
    std::int64_t away = 0, most = 0;
    for (std::int64_t c : change) most = std::max(most, away += c);
    auto rest = static_cast<double>(most);
    for (std::uint32_t t = 1; t <= last(); ++t) {
      share_[t] = std::min(rest, static_cast<double>(capacity(t)));
      rest -= share_[t];
    }
  }

  // What a tier has been dealt, of its share. The last one takes what fits nowhere else.
  double load(std::uint32_t t) const {
    return share_[t] > 0 ? dealt_[t] / share_[t] : std::numeric_limits<double>::infinity();
  }

  bool fits(std::uint32_t s, std::uint32_t t) const {
    bool room = true;
    for_each_time_away(s, [&](std::uint32_t begin, std::uint32_t end) {
      room &= static_cast<std::uint64_t>(filled_[t].most(begin, end)) + bytes(s) <= capacity(t);
    });
    return room;
  }

  const ScheduleInput& in_;
  const Machine& machine_;
  std::uint32_t ops_;
  std::vector<std::vector<const Gap*>> gaps_;  // per storage
  std::vector<std::uint32_t> order_, tiers_;   // storages in the order of eviction; per storage
  std::vector<Level> filled_;                  // per tier but the last, bytes at each op
  std::vector<double> share_, dealt_;          // per tier, bytes
};

}  // namespace

std::vector<std::uint32_t> choose_tiers(const ScheduleInput& in, const Schedule& schedule,
                                        const Machine& machine) {
  return TierChoice(in, schedule, machine).run();
}

}  // namespace sentinel::plan
