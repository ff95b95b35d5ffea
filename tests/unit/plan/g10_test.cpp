#include <gmock/gmock.h>

#include <algorithm>

#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "unit/plan/profiles.h"
#include "unit/plan/swaps.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kPage = 4096;

Plan planned(std::string_view policy, const Profile& profile, std::uint64_t pages,
             std::vector<std::string> without = {}) {
  const Plan plan =
      plan_of(policy, profile, host_and_ssd(), {.fast_bytes = pages * kPage, .without = without});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  return plan;
}

// Ten pages take 100 us, an op's time, to or from the SSD. Held: 30 of 20 pages at ops 3 and 4. a
// is away from op 2 to op 6 at the most (written during op 1, read during op 6), b from op 3 to op
// 5: either relieves both ops, 10 pages x 200 us for 200 us of transfers; the first is taken. The
// latest safe time for a is op 6; there is room from op 5 on.
TEST(G10, EvictsTheBestPeriodAndFetchesItEarly) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 7), c = b.temporary(10 * kPage, 1, 6),
                 d = b.temporary(10 * kPage, 3, 4);
  in_order(b, {{{}, {a}}, {{}, {c}}, {}, {{}, {d}}, {{d}, {}}, {}, {{c}, {}}, {{a}, {}}});
  EXPECT_THAT(swaps(planned("g10", b.profile, 20)),
              UnorderedElementsAre("0 out 0 to 2", "5 in 0 by 7"));
  EXPECT_THAT(swaps(planned("g10", b.profile, 20, {"eager-prefetch"})),
              UnorderedElementsAre("0 out 0 to 2", "6 in 0 by 7"));
}

// a and b both leave after op 0; 40 of 20 pages are held at ops 3 and 4. a's write takes the SSD
// for all of op 1, the time that b's would take: b goes to the host. Both are fetched when d is
// gone.
TEST(G10, UsesTheHostWhereTheSsdIsBusy) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 7), c = b.temporary(10 * kPage, 0, 6),
                 d = b.temporary(20 * kPage, 3, 4);
  in_order(b, {{{}, {a, c}}, {}, {}, {{}, {d}}, {{d}, {}}, {}, {{c}, {}}, {{a}, {}}});
  const auto both =
      UnorderedElementsAre("0 out 0 to 2", "0 out 1 to 1", "5 in 0 by 7", "5 in 1 by 6");
  EXPECT_THAT(swaps(planned("g10", b.profile, 20)), both);
  EXPECT_THAT(swaps(planned("g10-host", b.profile, 20)), both);
  const auto ssd =
      UnorderedElementsAre("0 out 0 to 2", "0 out 1 to 2", "5 in 0 by 7", "5 in 1 by 6");
  EXPECT_THAT(swaps(planned("g10-gds", b.profile, 20)), ssd);
  EXPECT_THAT(swaps(planned("g10", b.profile, 20, {"host-tier"})), ssd);
}

// The weight's idle time goes from op 4 to op 4 of the next step. 30 of 20 pages are held at ops 0
// and 1, where it is away: it comes back at op 2.
TEST(G10, IdleTimesOfGlobalTensorsCrossSteps) {
  ProfileBuilder b;
  const TensorId w = b.persistent(10 * kPage), x = b.temporary(20 * kPage, 0, 1);
  in_order(b, {{{}, {x}}, {{x}, {}}, {}, {}, {{w}, {}}, {}, {}, {}});
  EXPECT_THAT(swaps(planned("g10", b.profile, 20)),
              UnorderedElementsAre("4 out 0 to 2", "2 in 0 by 4"));
}

// No period is long enough to hide anything: what is used last leaves, and the reason says that G10
// itself would have left it to page faults.
TEST(G10, WhatNothingHidesLeavesAnyway) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 4), c = b.temporary(10 * kPage, 0, 5),
                 d = b.temporary(10 * kPage, 2, 2);
  in_order(b, {{{}, {a, c}}, {}, {{}, {d}}, {}, {{a}, {}}, {{c}, {}}}, 1);
  const Plan plan = planned("g10", b.profile, 20);
  ASSERT_THAT(swaps(plan), UnorderedElementsAre("0 out 1 to 1", "3 in 1 by 5"));
  for (const Move& m : plan.moves) EXPECT_THAT(m.reason, ::testing::HasSubstr("page fault in G10"));
}

// Three tensors of 100 bytes share one page each: one for what lives in one layer, one for the
// rest.
TEST(G10, TensorsBelowAPageAreCompacted) {
  ProfileBuilder b;
  std::vector<TensorId> small;
  for (int i = 0; i < 3; ++i) small.push_back(b.temporary(100, 0, 0));
  for (int i = 0; i < 3; ++i) small.push_back(b.temporary(100, 0, 1));
  const TensorId large = b.temporary(2 * kPage, 0, 1);
  b.op(0, 100, {}, small);
  b.op(1, 100, {small[3], large}, {});
  const Plan plan = planned("g10", b.profile, 100);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].bytes, kPage);
  EXPECT_EQ(plan.groups[1].bytes, kPage);
  EXPECT_EQ(plan.placements.size(), 6u);
  EXPECT_THAT(planned("g10-host", b.profile, 100).placements, IsEmpty());
}

// Frames of two pages: the same choices, the same tiers, the same times.
TEST(G10, ChoosesAlikeWhereGranulesAreShared) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 7), c = b.temporary(10 * kPage, 0, 6),
                 d = b.temporary(20 * kPage, 3, 4);
  in_order(b, {{{}, {a, c}}, {}, {}, {{}, {d}}, {{d}, {}}, {}, {{c}, {}}, {{a}, {}}});
  Machine machine = host_and_ssd();
  machine.granule_bytes = 2 * kPage;
  const PlanOptions options{.fast_bytes = 20 * kPage, .pool_frames = 0};
  const Plan plan = plan_of("g10", b.profile, machine, options);
  EXPECT_THAT(swaps(plan),
              UnorderedElementsAre("0 out 0 to 2", "0 out 1 to 1", "5 in 0 by 7", "5 in 1 by 6"));
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_EQ(plan.placements.size(), 3u);
  const Plan late =
      plan_of("g10", b.profile, machine,
              {.fast_bytes = 20 * kPage, .pool_frames = 0, .without = {"eager-prefetch"}});
  EXPECT_THAT(swaps(late),
              UnorderedElementsAre("0 out 0 to 2", "0 out 1 to 1", "6 in 0 by 7", "5 in 1 by 6"));
}

// A small net: of a hundred tensors of 256 bytes each would take a frame of 64 KiB, which is ten
// times the budget; together they take one.
TEST(G10, SmallTensorsShareFrames) {
  ProfileBuilder b;
  std::vector<TensorId> small;
  for (int i = 0; i < 100; ++i) small.push_back(b.temporary(256, 0, 5));
  const TensorId x = b.temporary(256_KiB, 0, 5), y = b.temporary(256_KiB, 2, 3);
  auto made = small;
  made.push_back(x);
  in_order(b, {{{}, made}, {}, {{}, {y}}, {{y}, {}}, {}, {made, {}}}, 1000);
  const Plan plan =
      plan_of("g10", b.profile, two_tiers(64_KiB), {.fast_bytes = 512_KiB, .pool_frames = 0});
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_LE(plan.peak_fast_bytes, 512_KiB);
  EXPECT_EQ(plan.smallest_unstreamed_budget, 5 * 64_KiB);
}

// Tensors of half a frame, two of them in each: a frame is free while both are away, though the
// step uses them one after the other.
TEST(G10, WhatSharesAFrameLeavesIt) {
  ProfileBuilder b;
  std::vector<TensorId> halves;
  for (int i = 0; i < 8; ++i) halves.push_back(b.temporary(32_KiB, 0, 9));
  const TensorId large = b.temporary(256_KiB, 3, 4);
  in_order(b, {{{}, halves}, {}, {}, {{}, {large}}, {{large}, {}}, {}, {}, {}, {halves, {}}, {}},
           1000);
  const Plan plan =
      plan_of("g10", b.profile, two_tiers(64_KiB), {.fast_bytes = 256_KiB, .pool_frames = 0});
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_EQ(std::ranges::count(plan.moves, Direction::demote, &Move::direction), 8);
}

TEST(G10, AnOpThatDoesNotFitIsStreamedWhereGranulesAreShared) {
  ProfileBuilder b;
  const TensorId x = b.temporary(256_KiB, 0, 4), y = b.temporary(256_KiB, 2, 4);
  in_order(b, {{{}, {x}}, {}, {{}, {y}}, {{x, y}, {}}, {{y}, {}}}, 1000);
  const PlanOptions options{.fast_bytes = 384_KiB, .pool_frames = 0, .threads = 1};
  const Plan plan = plan_of("g10", b.profile, two_tiers(64_KiB), options);
  EXPECT_THAT(plan.streamed_ops, ElementsAre(OpId(3)));
  EXPECT_EQ(plan.smallest_unstreamed_budget, 512_KiB);
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  EXPECT_THAT(
      [&] {
        plan_of("g10", b.profile, two_tiers(64_KiB),
                {.fast_bytes = 128_KiB, .pool_frames = 0, .threads = 1});
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("smallest budget that works is 256 KiB")));
}

TEST(G10, PlansWhateverSentinelPlansWhereGranulesAreShared) {
  int refused = 0, planned_ones = 0;
  Machine machine = host_and_ssd();
  machine.granule_bytes = 64_KiB;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Profile profile = random_graph(seed);
    for (const std::uint64_t share : {20, 50, 80}) {
      const PlanOptions options{.fast_bytes = peak_live_bytes(profile) * share / 100, .threads = 1};
      try {
        plan_of("sentinel", profile, machine, options);
      } catch (const Error&) {
        ++refused;
        continue;
      }
      for (const char* policy : {"g10", "g10-gds", "g10-host"}) {
        const Plan plan = plan_of(policy, profile, machine, options);
        EXPECT_THAT(verify(plan, profile, machine), IsEmpty()) << policy << seed << ' ' << share;
        planned_ones += plan.moves.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_LT(refused, 100);
  EXPECT_GT(planned_ones, 600);
}

// Tensors that no op uses never leave, nor do granules shared by persistent tensors: there are
// none.
TEST(G10, PlansOfAnyGraphVerifyWhereItsLargestOpFits) {
  int planned_ones = 0;
  Machine machine = host_and_ssd();
  machine.granule_bytes = 64;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Profile profile = random_graph(seed);
    const auto used = uses(profile);
    for (std::size_t t = 0; t < used.size(); ++t) profile.tensors[t].foreign |= used[t].empty();
    for (const std::uint64_t share : {30, 60, 90})
      for (const char* policy : {"g10", "g10-gds", "g10-host"}) {
        const PlanOptions options{.fast_bytes = peak_live_bytes(profile) * share / 100};
        try {
          const Plan plan = plan_of(policy, profile, machine, options);
          EXPECT_THAT(verify(plan, profile), IsEmpty()) << policy << seed << ' ' << share;
          planned_ones += plan.moves.empty() ? 0 : 1;
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), ::testing::HasSubstr("at once")) << policy << seed << ' ' << share;
        }
      }
  }
  EXPECT_GT(planned_ones, 300);
}

}  // namespace
}  // namespace sentinel::plan
