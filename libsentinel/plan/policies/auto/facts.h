// What the policy `auto` works with: a step cut into parts, its idle gaps, what moving and remaking
// them costs. Computed once.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/gaps/decisions.h"

namespace sentinel::plan {

constexpr std::string_view kCopies = "copies";  // the feature: what leaves is copied ahead

struct Facts {
  // A training run's plans with replays: tensors share granules (plan/gaps/scheduled.h). In all
  // other plans each tensor has granules of its own.
  static bool framed(const Machine&, const PlanOptions&);

  // `profile` is `whole` cut into parts of `part_bytes`. All of them must outlive the facts.
  Facts(const Profile& whole, std::uint64_t part_bytes, const Profile& profile, const Machine&,
        const PlanOptions&);

  const Profile& whole;
  std::uint64_t part_bytes;
  Basis basis;  // of the parts
  const Profile& profile;
  const Machine& machine;
  const PlanOptions& options;
  bool frames;                             // framed()
  const std::vector<Storage>& storages;    // of the basis
  const std::vector<std::uint64_t>& held;  // per op: everything alive
  std::vector<IdleGap> gaps;
  std::vector<std::optional<OpId>> makers;  // per gap: the op that made what its next use reads
  std::vector<double> remake_us_per_byte;   // per gap; kNever where it is not legal
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  double swap_us_per_byte(const IdleGap&) const;  // there and back, to the first slower tier
  bool remakable(std::size_t gap) const {
    return options.recompute && remake_us_per_byte[gap] < kNever;
  }
  std::uint64_t limit(double slack) const {  // the budget less a share of it
    return static_cast<std::uint64_t>((1 - slack) * static_cast<double>(options.fast_bytes));
  }
  bool may_copy() const { return options.copies && uses(options, kCopies); }
  Decision swap(const IdleGap&) const;  // to the first slower tier, back as early as there is room
};

}  // namespace sentinel::plan
