#include "plan/emit.h"

#include <fmt/format.h>

#include <algorithm>

namespace sentinel::plan {
namespace {

class Emitter {
 public:
  Emitter(Plan& plan, const Emission& in, const std::vector<bool>& left)
      : plan_(plan),
        in_(in),
        left_(left),
        ops_(static_cast<std::uint32_t>(in.profile.ops.size())),
        stays_(in.schedule.gaps.size(), false) {}

  void run() {
    find_stays();
    const auto& gaps = in_.schedule.gaps;
    for (std::uint32_t k = 0; k < ops_; ++k) {
      for (std::uint32_t g : in_.lists.demote[k])
        if (!stays_[g]) plan_.moves.push_back(demotion(gaps[g]));
      for (std::uint32_t g : in_.lists.promote[k])
        if (!left_[g]) plan_.moves.push_back(promotion(gaps[g]));
    }
    for (std::uint32_t k : in_.schedule.streamed) plan_.streamed_ops.push_back(OpId(k));
    sort_in_place(plan_);
  }

 private:
  // Gaps of one storage lie together, by use. After a gap that was left the storage stays away
  // through every gap until one is promoted from.
  void find_stays() {
    const auto& gaps = in_.schedule.gaps;
    for (std::size_t begin = 0; begin < gaps.size();) {
      std::size_t end = begin;
      while (end < gaps.size() && gaps[end].storage == gaps[begin].storage) ++end;
      leave(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
      begin = end;
    }
  }

  void leave(std::uint32_t begin, std::uint32_t end) {
    const Storage& s = in_.storages[in_.schedule.gaps[begin].storage];
    bool all = s.persistent;
    for (std::uint32_t g = begin; g < end; ++g) all = all && left_[g];
    for (std::uint32_t g = begin; g < end; ++g) {
      if (!left_[g]) continue;
      const bool last = g + 1 == end;
      if (!last) stays_[g + 1] = true;
      if (last && s.persistent) stays_[begin] = true;
      const auto& gaps = in_.schedule.gaps;
      const std::uint32_t until = !last          ? gaps[g + 1].use
                                  : s.persistent ? gaps[begin].use + ops_
                                                 : s.last;
      use_in_place(s, gaps[g].next, until);
    }
    if (all) plan_.births.push_back({s.tensor, in_.tiers[in_.schedule.gaps[begin].storage]});
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
            .tier = in_.tiers[gap.storage],
            .reason = fmt::format("needed by {}{}", op_name(gap.next), why)};
  }

  Move demotion(const Gap& gap) const {
    const std::uint32_t held_until = gap.out > gap.use ? gap.out - 1 : gap.use;
    std::string reason = gap.forced   ? "its op is streamed, which leaves nothing in place"
                         : gap.needed ? fmt::format("not needed before {}", op_name(gap.next))
                                      : std::string("not needed again");
    if (gap.out == gap.use + 1 && !gap.forced) reason += "; the next op needs its space at once";
    return {.tensor = in_.storages[gap.storage].at(gap.use, ops_),
            .direction = Direction::demote,
            .trigger = OpId(gap.use % ops_),
            .deadline = OpId(held_until % ops_),
            .tier = in_.tiers[gap.storage],
            .reason = std::move(reason)};
  }

  Plan& plan_;
  const Emission& in_;
  const std::vector<bool>& left_;
  std::uint32_t ops_;
  std::vector<bool> stays_;  // per gap: away already
};

}  // namespace

void emit(Plan& plan, const Emission& in, const std::vector<bool>& left) {
  Emitter(plan, in, left).run();
}

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
