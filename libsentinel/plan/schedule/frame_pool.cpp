// Sizes the pool of free frames, and refuses budgets that are too small for any pool.
#include "plan/schedule/frame_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// What one instruction of each thread may touch: two operands and a result that each cross a
// granule boundary would be six; four covers what compilers emit.
constexpr std::uint64_t kGranulesPerThread = 4;
constexpr std::uint32_t kLeastPool = 2;  // frames: one on its way in, one out

std::uint64_t largest(const std::vector<std::uint64_t>& v) {
  return v.empty() ? 0 : *std::ranges::max_element(v);
}

std::uint64_t whole_pool(const BudgetInput& in) {
  return in.options.pool_frames * in.machine.granule_bytes;
}

// Section IV-E: below the peak of the short-lived tensors and the largest long-lived one, the
// paper expects a loss of more than a fifth.
std::uint64_t paper_bound(const BudgetInput& in) {
  std::uint64_t tensor = 0;
  for (std::size_t i = 0; i < in.storages.size(); ++i)
    if (in.movable[i]) tensor = std::max(tensor, in.storages[i].bytes);
  return largest(in.demand.reserved) + round_up(tensor, in.machine.granule_bytes) + frame_pool(in);
}

}  // namespace

std::uint64_t least_frame_pool(const BudgetInput& in) {
  return std::min(in.options.pool_frames, kLeastPool) * in.machine.granule_bytes;
}

std::uint64_t frame_pool(const BudgetInput& in) {
  std::uint64_t most = 0;  // of the ops that can do without being streamed
  for (std::uint64_t bytes : in.demand.must)
    if (bytes + least_frame_pool(in) <= in.options.fast_bytes) most = std::max(most, bytes);
  const std::uint64_t granule = in.machine.granule_bytes;
  return std::min(whole_pool(in), (in.options.fast_bytes - most) / granule * granule);
}

void fill_bounds(Plan& plan, const BudgetInput& in) {
  const std::uint64_t threads =
      std::max(in.options.threads != 0 ? in.options.threads : in.profile.meta.machine.cores, 1u);
  const std::uint64_t everything = largest(in.demand.all);
  const std::uint64_t by_faults =
      whole_pool(in) + threads * kGranulesPerThread * in.machine.granule_bytes;
  plan.smallest_budget = std::min(by_faults, everything);
  plan.smallest_unstreamed_budget = std::max(
      plan.smallest_budget, std::min(largest(in.demand.must) + least_frame_pool(in), everything));
  plan.paper_bound = paper_bound(in);
}

void refuse_too_small(const Plan& plan, const Machine& machine) {
  if (plan.fast_bytes < plan.smallest_budget)
    throw Error(fmt::format(
        "{} of fast memory are too few: the smallest budget that works is {}; from {} on no "
        "operation has to be streamed; the bound of the Sentinel paper (section IV-E), short-lived "
        "peak and largest long-lived tensor, is {}",
        print_bytes(plan.fast_bytes), print_bytes(plan.smallest_budget),
        print_bytes(plan.smallest_unstreamed_budget), print_bytes(plan.paper_bound)));
  if (machine.tiers.size() < 2)
    throw Error(fmt::format("machine {} has no slower tier to plan for", machine.name));
}

}  // namespace sentinel::plan
