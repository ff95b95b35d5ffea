// Policies that lower a peak gap by gap, on steps of any shape: what they plan holds.
#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;

class PeakPolicies : public ::testing::TestWithParam<std::uint64_t> {};

// A budget that is too small is refused; every plan there is verifies.
TEST_P(PeakPolicies, PlanWhatVerifies) {
  int plans = 0;
  for (const char* name : {"tensile", "capuchin", "vdnn"})
    for (const Profile& profile : {random_training(GetParam()), random_graph(GetParam())})
      for (const std::uint64_t percent : {40, 60, 80, 200})
        for (const double gb_per_s : {0.5, 20.0}) {
          const auto policy = make_policy(name);
          try {
            const Plan plan = dynamic_cast<PlannedPolicy&>(*policy).plan(
                profile, two_tiers(4096, gb_per_s),
                {.fast_bytes = peak_live_bytes(profile) * percent / 100});
            EXPECT_THAT(verify(plan, profile), ::testing::IsEmpty()) << name << ' ' << percent;
            ++plans;
          } catch (const Error&) {
            EXPECT_LT(percent, 200u) << name;
          }
        }
  EXPECT_GE(plans, 12);
}
INSTANTIATE_TEST_SUITE_P(Seeds, PeakPolicies, ::testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace sentinel::plan
