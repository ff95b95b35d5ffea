// LMS: Le, Imai, Negishi, Kawachiya, "Automatic GPU Memory Management for Large Neural Models in
// TensorFlow", ISMM 2019; github.com/IBM/tensorflow-large-model-support.
//
// Modelled: on a topological order of the ops, a tensor is swapped out to host memory where it is
// made more than `swapout_threshold` ops before a consumer, and swapped in `swapin_ahead` ops
// before that; consumers less than `swapin_groupby` ops apart share one swap-in; variables are
// never swapped. The three are tuned as in the paper by replaying the order against the memory's
// size: the largest threshold that fits, then the largest ahead, then the largest groupby; a
// swapped-out tensor holds its memory through one further op, and where nothing fits so, swaps out
// are waited for (the synchronous mode).
// Left out: the order itself (the trace's is taken), the reserve of a tenth for fragmentation, the
// exemption of tensors with fewer than two dimensions (a trace has no shapes; tensors below a
// granule are exempt instead), synchronous swap-ins.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/units.h"
#include "plan/gaps/decisions.h"
#include "plan/gaps/pressure.h"
#include "plan/layout/compaction.h"
#include "plan/step/level.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

struct Parameters {  // all in ops
  std::uint32_t swapout_threshold = 0, swapin_ahead = 0, swapin_groupby = 0;
  bool synchronous = false;
};

class LmsPlanner {
 public:
  LmsPlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        storages_(storages(profile)),
        footprint_(profile, {}, machine.granule_bytes),
        alive_(whole_demand(profile, storages_, footprint_).all),
        ops_(static_cast<std::uint32_t>(profile.ops.size())) {
    for (const IdleGap& gap : idle_gaps(profile, storages_, machine)) {
      const Storage& s = storages_[gap.storage];
      if (s.persistent || s.carried || !gap.needed || below_granule(s, machine.granule_bytes))
        continue;
      gaps_.push_back(gap);
    }
  }

  Plan plan();

 private:
  bool swapped(const IdleGap&, const Parameters&) const;
  std::uint32_t swap_in(const IdleGap&, const Parameters&) const;
  std::optional<std::uint32_t> overflow(const Parameters&) const;
  Parameters tuned() const;
  void enlarge(Parameters&, std::uint32_t Parameters::*) const;
  std::vector<Decision> decisions(const Parameters&) const;

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::vector<Storage> storages_;
  Footprint footprint_;
  std::vector<std::uint64_t> alive_;
  std::uint32_t ops_;
  std::vector<IdleGap> gaps_;
};

bool LmsPlanner::swapped(const IdleGap& gap, const Parameters& p) const {
  return gap.next - storages_[gap.storage].first > p.swapout_threshold &&
         gap.next - gap.use > p.swapin_groupby;
}

std::uint32_t LmsPlanner::swap_in(const IdleGap& gap, const Parameters& p) const {
  return std::max(gap.use + 2, gap.next - std::min(gap.next, p.swapin_ahead));
}

// The last op at which too much would be held.
std::optional<std::uint32_t> LmsPlanner::overflow(const Parameters& p) const {
  Level held(alive_);
  for (const IdleGap& gap : gaps_)
    if (swapped(gap, p)) {
      const std::uint32_t out = gap.use + (p.synchronous ? 1 : 2);
      held.add(out, swap_in(gap, p),
               -static_cast<std::int64_t>(freed_bytes(footprint_, storages_[gap.storage])));
    }
  return held.last_above(0, ops_, static_cast<std::int64_t>(options_.fast_bytes));
}

// The largest value of one parameter that fits; its present one does.
void LmsPlanner::enlarge(Parameters& p, std::uint32_t Parameters::*which) const {
  std::uint32_t fits = p.*which, too_large = ops_ + 1;
  while (too_large - fits > 1) {
    p.*which = fits + (too_large - fits) / 2;
    (overflow(p) ? too_large : fits) = p.*which;
  }
  p.*which = fits;
}

Parameters LmsPlanner::tuned() const {
  Parameters p;
  p.synchronous = overflow(p).has_value();
  if (const auto op = overflow(p))
    throw Error(fmt::format(
        "lms does not swap variables; with everything else swapped op {} ({}) still holds more "
        "than {}",
        *op, profile_.ops[*op].name, print_bytes(options_.fast_bytes)));
  enlarge(p, &Parameters::swapout_threshold);
  enlarge(p, &Parameters::swapin_ahead);
  enlarge(p, &Parameters::swapin_groupby);
  return p;
}

std::vector<Decision> LmsPlanner::decisions(const Parameters& p) const {
  std::vector<Decision> all;
  for (const IdleGap& gap : gaps_)
    if (swapped(gap, p))
      all.push_back({.storage = gap.storage,
                     .use = gap.use,
                     .next = gap.next,
                     .remedy = Remedy::swap,
                     .tier = 1,
                     .fetch = swap_in(gap, p)});
  return all;
}

Plan LmsPlanner::plan() {
  std::vector<Decision> chosen;
  if (std::ranges::max(alive_) > options_.fast_bytes) chosen = decisions(tuned());
  return decided_plan("lms", profile_, machine_, options_, chosen).plan;
}

class LmsPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "lms"; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    return LmsPlanner(profile, machine, options).plan();
  }
};

}  // namespace

std::unique_ptr<Policy> make_lms() { return std::make_unique<LmsPolicy>(); }

}  // namespace sentinel::plan
