// What every policy driven by page faults promises (include/sentinel/paging.h), whatever the
// machine's size. A policy joins with one line:
//   INSTANTIATE_TEST_SUITE_P(Mine, sentinel::PagingContract, ::testing::Values("mine"));
#pragma once

#include <gmock/gmock.h>

#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/paging.h"
#include "sim/run.h"
#include "unit/plan/profiles.h"

namespace sentinel {

class PagingContract : public ::testing::TestWithParam<const char*> {
 protected:
  static Machine machine(bool byte_addressable) {
    Machine m = testing::two_tiers(64_KiB, 4);
    m.tiers[1].byte_addressable = byte_addressable;
    return m;
  }
  bool cache() const {
    const auto policy = make_policy(GetParam());
    return dynamic_cast<PagedPolicy&>(*policy).mechanism() == Mechanism::hardware_cache;
  }
  sim::SimResult result(const Profile& profile, std::uint64_t fast_bytes) const {
    return sim::run(*make_policy(GetParam()), profile, machine(cache()), {.fast_bytes = fast_bytes})
        .result;
  }
  static std::uint64_t budget(const Profile& profile, std::uint64_t percent) {
    return std::max(4_MiB, peak_live_bytes(profile) * percent / 100);
  }
};

TEST_P(PagingContract, IsKnownByItsName) {
  EXPECT_EQ(make_policy(GetParam())->name(), GetParam());
  EXPECT_THAT(policy_names(), ::testing::Contains(std::string_view(GetParam())));
}

TEST_P(PagingContract, StaysWithinItsMemoryAndRepeatsItself) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    for (const Profile& profile : {testing::random_training(seed), testing::random_graph(seed)})
      for (const std::uint64_t percent : {10, 40, 80}) {
        const std::uint64_t fast = budget(profile, percent);
        const auto r = result(profile, fast);
        EXPECT_LE(r.peak_fast_bytes, fast) << seed << " at " << percent;
        EXPECT_GE(r.step_us, r.ideal_us * (1 - 1e-9)) << seed << " at " << percent;
        EXPECT_EQ(r, result(profile, fast)) << seed << " at " << percent;
      }
}

// What is not in fast memory is below it: over steps that repeat exactly, as much comes as goes.
TEST_P(PagingContract, BytesAreConserved) {
  int repeated = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Profile profile = testing::random_training(seed);
    const auto r = result(profile, budget(profile, 50));
    std::uint64_t in = 0, out = 0;
    for (const auto& t : r.traffic) (t.to == "fast" ? in : out) += t.bytes;
    const std::size_t n = r.step_times_us.size();
    if (std::abs(r.step_times_us[n - 1] - r.step_times_us[n - 2]) > 1e-6) continue;
    ++repeated;
    if (cache())
      EXPECT_LE(out, in) << seed;  // what is clean is not written back
    else
      EXPECT_EQ(out, in) << seed;
  }
  EXPECT_GT(repeated, 0);
}

TEST_P(PagingContract, WithoutScarcityNothingMoves) {
  const Profile profile = testing::random_training(3);
  const auto r = result(profile, 1024_GiB);
  EXPECT_NEAR(r.step_us, r.ideal_us, 1e-6);
  EXPECT_THAT(r.traffic, ::testing::IsEmpty());
  EXPECT_EQ(r.demand_faults, 0u);
}

TEST_P(PagingContract, RefusesWhatCannotWork) {
  const Profile profile = testing::random_training(3);
  EXPECT_THROW(result(profile, 0), Error);
  const auto policy = make_policy(GetParam());
  EXPECT_THROW(sim::run(*policy, profile, machine(cache()),
                        {.fast_bytes = 8_MiB, .without = {"no such feature"}}),
               Error);
}

}  // namespace sentinel
