// Turns a schedule's gaps and fates into moves and uses in place.
#include "plan/schedule/emit.h"

#include <fmt/format.h>

#include <algorithm>

namespace sentinel::plan {
namespace {

class Emitter {
 public:
  Emitter(Plan& plan, const Emission& e, const Fates& fates)
      : plan_(plan),
        in_(e.in),
        e_(e),
        fates_(fates),
        away_(stays_away(e.in, e.schedule, fates)),
        ops_(static_cast<std::uint32_t>(e.in.profile.ops.size())) {}

  void run() {
    const auto& gaps = e_.schedule.gaps;
    for (std::uint32_t k = 0; k < ops_; ++k) {
      for (std::uint32_t g : e_.lists.demote[k])
        if (!away_[g] && fates_[g] != Fate::keep) plan_.moves.push_back(demotion(gaps[g]));
      for (std::uint32_t g : e_.lists.promote[k])
        if (fates_[g] == Fate::move) plan_.moves.push_back(promotion(gaps[g]));
    }
    for (std::uint32_t k : e_.schedule.streamed) plan_.streamed_ops.push_back(OpId(k));
    for (std::uint32_t g = 0; g < gaps.size(); ++g) leave(g);
    sort_in_place(plan_);
  }

 private:
  void leave(std::uint32_t g) {
    if (fates_[g] != Fate::leave) return;
    const Gap& gap = e_.schedule.gaps[g];
    const Storage& s = in_.storages[gap.storage];
    use_in_place(s, gap.next, away_until(in_, e_.schedule, g));
    const auto& gaps = e_.schedule.gaps;
    const auto brought_back = [&](std::uint32_t other) { return fates_[other] != Fate::leave; };
    if (!s.persistent || (g > 0 && gaps[g - 1].storage == gap.storage)) return;
    for (std::uint32_t other = g; other < gaps.size() && gaps[other].storage == gap.storage;
         ++other)
      if (brought_back(other)) return;
    plan_.births.push_back({s.tensor, tier_of(gap, e_.tiers)});  // never in fast memory
  }

  // Positions [from, to], at most one step long; a persistent storage's uses repeat.
  void use_in_place(const Storage& s, std::uint32_t from, std::uint32_t to) {
    for (const std::uint32_t lap : {0u, ops_}) {
      if (lap > 0 && !s.persistent) return;
      const auto first = std::ranges::lower_bound(s.uses, from > lap ? from - lap : 0);
      for (auto use = first; use != s.uses.end() && *use + lap <= to; ++use)
        plan_.in_place.push_back({s.at(*use, ops_), OpId(*use % ops_)});
    }
  }

  std::string op_name(std::uint32_t position) const {
    return fmt::format("op {} ({})", position % ops_, in_.profile.ops[position % ops_].name);
  }

  Move promotion(const Gap& gap) const {
    const char* why = gap.in == gap.next    ? "; no room any earlier"
                      : gap.in > gap.target ? "; put off until there was room"
                                            : "; an interval ahead";
    return {.tensor = in_.storages[gap.storage].at(gap.in, ops_),
            .direction = Direction::promote,
            .trigger = OpId(gap.in % ops_),
            .deadline = OpId(gap.next % ops_),
            .tier = tier_of(gap, e_.tiers),
            .reason = fmt::format("needed by {}{}", op_name(gap.next), why)};
  }

  // plan/gaps/remade.h adds how, and what it costs.
  Move discard(const Gap& gap) const {
    return {.tensor = in_.storages[gap.storage].at(gap.use, ops_),
            .direction = Direction::discard,
            .trigger = OpId(gap.use % ops_),
            .deadline = OpId(gap.use % ops_),
            .reason = fmt::format("made again before {}", op_name(gap.next))};
  }

  Move demotion(const Gap& gap) const {
    if (gap.remade) return discard(gap);
    const std::uint32_t held_until = gap.out > gap.use ? gap.out - 1 : gap.use;
    std::string reason = gap.forced   ? "its op is streamed, which leaves it scattered"
                         : gap.needed ? fmt::format("not needed before {}", op_name(gap.next))
                                      : std::string("not needed again");
    if (gap.out == gap.use + 1 && !gap.forced) reason += "; the next op needs its space at once";
    return {.tensor = in_.storages[gap.storage].at(gap.use, ops_),
            .direction = gap.forced ? Direction::release : Direction::demote,
            .trigger = OpId(gap.use % ops_),
            .deadline = OpId(held_until % ops_),
            .tier = tier_of(gap, e_.tiers),
            .reason = std::move(reason)};
  }

  Plan& plan_;
  const ScheduleInput& in_;
  const Emission& e_;
  const Fates& fates_;
  std::vector<bool> away_;  // per gap
  std::uint32_t ops_;
};

}  // namespace

void emit(Plan& plan, const Emission& e, const Fates& fates) { Emitter(plan, e, fates).run(); }

void emit_slow(Plan& plan, const Profile& profile, const Storage& s, std::uint32_t tier) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  plan.births.push_back({s.tensor, tier});
  for (std::uint32_t use : s.uses) plan.in_place.push_back({s.at(use, ops), OpId(use % ops)});
}

void sort_in_place(Plan& plan) {
  std::ranges::sort(plan.in_place);
  const auto repeated = std::ranges::unique(plan.in_place);
  plan.in_place.erase(repeated.begin(), repeated.end());
  std::ranges::sort(plan.births, {}, &Birth::tensor);
}

}  // namespace sentinel::plan
