// The yardstick of every comparison: fast memory that holds everything, so that a step takes its
// ops' time (G10's "Ideal", section 7.1). The budget is ignored: the plan moves nothing and its
// fast_bytes is its peak.
#include <limits>

#include "plan/gaps/decisions.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

class IdealPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "ideal"; }
  bool ignores_budget() const override { return true; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    PlanOptions unlimited = options;
    unlimited.fast_bytes = std::numeric_limits<std::uint64_t>::max();
    Plan plan = decided_plan(name(), profile, machine, unlimited, {}).plan;
    plan.fast_bytes = plan.peak_fast_bytes;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_ideal() { return std::make_unique<IdealPolicy>(); }

}  // namespace sentinel::plan
