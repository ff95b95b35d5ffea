// What a step holds, and when it wants more than its base.
#include "plan/step/peaks.h"

#include <gmock/gmock.h>

#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using sentinel::testing::ProfileBuilder;
using sentinel::testing::random_training;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Eight ops of 10 ms; a weight of 80 MiB, and 160 MiB more in ops 3 to 5.
Profile mountain() {
  ProfileBuilder b;
  const auto weight = b.persistent(80_MiB), saved = b.temporary(160_MiB, 3, 5);
  for (std::size_t k = 0; k < 8; ++k)
    b.op(0, 10'000, k == 3 ? std::vector{weight} : std::vector{weight, k == 4 ? saved : weight},
         k == 3 ? std::vector{saved} : std::vector<TensorId>{});
  return b.profile;
}

constexpr std::uint64_t kBase = 84_MiB + 512_KiB, kTop = 249_MiB + 512_KiB;  // what it holds

TEST(Peaks, UsualIsWhatHalfOfTheTimeNeeds) {
  EXPECT_EQ(held_bytes(mountain(), 2_MiB)[0], kBase);
  EXPECT_EQ(held_bytes(mountain(), 2_MiB)[4], kTop);
  EXPECT_EQ(usual_bytes(mountain(), 2_MiB), kBase);
  auto longer = mountain();
  longer.ops[4].us = 60'000;
  EXPECT_EQ(usual_bytes(longer, 2_MiB), kTop);
  for (auto& op : longer.ops) op.us = 0;
  EXPECT_EQ(usual_bytes(longer, 2_MiB), kBase) << "without times each op takes as long";
}

TEST(Peaks, AreAskedForAheadAndGivenBack) {
  const PeakOptions options{.base = kBase, .most = kTop, .frames_bytes = 2_MiB};
  EXPECT_THAT(peaks(mountain(), options), ElementsAre(0, 0, 0, 165_MiB, 165_MiB, 165_MiB, 0, 0));
  auto early = options;
  early.ahead_us = 15'000;
  EXPECT_THAT(peaks(mountain(), early),
              ElementsAre(0, 0, 165_MiB, 165_MiB, 165_MiB, 165_MiB, 0, 0));
  auto small = options;
  small.most = kBase + 28_MiB;
  EXPECT_THAT(peaks(mountain(), small), ElementsAre(0, 0, 0, 28_MiB, 28_MiB, 28_MiB, 0, 0))
      << "no more than the plan is for";
}

TEST(Peaks, OfABaseThatIsEnoughThereAreNone) {
  EXPECT_THAT(peaks(mountain(), {.base = kTop, .most = 400_MiB, .frames_bytes = 2_MiB}), IsEmpty());
  EXPECT_THAT(peaks(mountain(), {.base = 92_MiB, .most = 92_MiB}), IsEmpty());
  EXPECT_THAT(peaks(mountain(), {}), IsEmpty());
}

TEST(Peaks, AStepEndsWhereTheNextBegins) {
  ProfileBuilder b;
  const auto weight = b.persistent(80_MiB), first = b.temporary(80_MiB, 0, 0);
  for (std::size_t k = 0; k < 6; ++k)
    b.op(0, 10'000, {weight}, k == 0 ? std::vector{first} : std::vector<TensorId>{});
  const auto half = 82_MiB + 512_KiB;
  const PeakOptions options{.base = half, .most = 2 * half, .frames_bytes = 0, .ahead_us = 15'000};
  EXPECT_THAT(peaks(b.profile, options), ElementsAre(half, 0, 0, 0, 0, half));
  auto valley = options;
  valley.valley_us = 45'000;
  EXPECT_THAT(peaks(b.profile, valley), ElementsAre(half, half, half, half, half, half))
      << "as much comes again soon";
}

TEST(Peaks, OfAnyStepAreBetweenWhatItHoldsAndItsPlan) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const auto profile = random_training(seed);
    const auto held = held_bytes(profile, 4_MiB);
    const auto most = *std::ranges::max_element(held), base = usual_bytes(profile, 4_MiB);
    const auto beyond = peaks(profile, {.base = base,
                                        .most = most,
                                        .frames_bytes = 4_MiB,
                                        .ahead_us = 1'000.0 * (seed % 5),
                                        .valley_us = 1'000.0 * (seed % 7)});
    if (beyond.empty()) continue;
    ASSERT_EQ(beyond.size(), held.size());
    for (std::size_t op = 0; op < held.size(); ++op) {
      EXPECT_GE(base + beyond[op], std::min(held[op], most));
      EXPECT_LE(base + beyond[op], most);
    }
  }
}

}  // namespace
}  // namespace sentinel::plan
