#include "plan/step/interval.h"

#include <gmock/gmock.h>

#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;

// Eight layers of one op, 100 us each. w is used by layers 0 and 4, v by 2 and 6; 1000 bytes each
// at 5 bytes a us: 200 us a move.
struct EightLayers {
  Profile profile;
  std::vector<Storage> all;
  std::vector<bool> movable{true, true};
  std::vector<std::uint64_t> reserved = std::vector<std::uint64_t>(8, 0);
  EightLayers() {
    ProfileBuilder b;
    const TensorId w = b.persistent(1000), v = b.persistent(1000);
    for (std::uint32_t l = 0; l < 8; ++l)
      b.op(l, 100,
           l % 4 == 0   ? std::vector{w}
           : l % 4 == 2 ? std::vector{v}
                        : std::vector<TensorId>{});
    profile = b.profile;
    all = storages(profile);
  }
  IntervalInput input(std::uint64_t fast = 10'000) const {
    return {profile, all, movable, reserved, fast, 5.0};
  }
};

// One layer: each of the four uses brings its tensor in during the layer before: 4 x (200 - 100).
// Two layers: 4 x (200 - 200) = 0. Four layers: every interval needs both, nothing moves.
TEST(Interval, ExposedTimeOfEquation2) {
  const EightLayers m;
  EXPECT_DOUBLE_EQ(interval_point(m.input(), 1).exposed_us, 400);
  EXPECT_DOUBLE_EQ(interval_point(m.input(), 2).exposed_us, 0);
  EXPECT_DOUBLE_EQ(interval_point(m.input(), 4).exposed_us, 0);
}

TEST(Interval, ShortestOfTheBestIsChosen) {
  const EightLayers m;
  const auto curve = interval_curve(m.input(), 0);
  ASSERT_EQ(curve.size(), 4u);
  EXPECT_EQ(best_interval(curve), 2u);
}

TEST(Interval, SpaceConstraintOfEquation1) {
  EightLayers m;
  m.reserved.assign(8, 500);
  EXPECT_TRUE(interval_point(m.input(1501), 1).fits);
  EXPECT_FALSE(interval_point(m.input(1500), 1).fits);
  EXPECT_EQ(interval_point(m.input(), 1).reserved_bytes, 500);
}

TEST(Interval, CutsAtLayersAndSkipsEmptyOnes) {
  ProfileBuilder b;
  for (std::uint32_t layer : {0u, 0u, 1u, 5u, 6u}) b.op(layer, 1, {});
  const Intervals intervals(b.profile, 2);  // layers 0-1, 4-5, 6-7; 2-3 have no op
  EXPECT_EQ(intervals.size(), 3u);
  EXPECT_EQ(intervals.first_op(1), 3u);
  EXPECT_EQ(intervals.of(4), 2u);
}

}  // namespace
}  // namespace sentinel::plan
