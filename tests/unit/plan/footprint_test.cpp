#include "plan/step/footprint.h"

#include <gmock/gmock.h>

#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;

// Arena of 4 KiB granules: a covers granules 0 to 2, b the rest of 2 and all of 3.
TEST(Footprint, SharedGranulesAreUnitsOfTheirOwn) {
  ProfileBuilder builder;
  const TensorId a = builder.persistent(10'000), b = builder.persistent(6'000);
  builder.op(0, 1, {a, b});
  const Footprint footprint(builder.profile, {}, 4096);
  ASSERT_EQ(footprint.units(a).size(), 2u);
  ASSERT_EQ(footprint.units(b).size(), 2u);
  EXPECT_EQ(footprint.units(a)[1], footprint.units(b)[0]);
  EXPECT_EQ(footprint.bytes(footprint.units(a)[0]), 8192u);

  Holding holding(footprint);
  EXPECT_EQ(holding.missing(a), 3 * 4096u);
  holding.hold(a);
  EXPECT_EQ(holding.missing(b), 4096u);
  holding.hold(b);
  EXPECT_EQ(holding.bytes(), 4 * 4096u);
  holding.drop(a);
  EXPECT_EQ(holding.bytes(), 2 * 4096u);
}

TEST(Footprint, UnknownAddressesShareNothing) {
  ProfileBuilder builder;
  const TensorId a = builder.persistent(100), b = builder.persistent(100);
  for (TensorId t : {a, b}) builder.profile.tensors[t.index()].offset.reset();
  builder.op(0, 1, {a, b});
  const Footprint footprint(builder.profile, {}, 4096);
  EXPECT_NE(footprint.units(a)[0], footprint.units(b)[0]);
}

TEST(Footprint, ForeignAndEmptyTensorsOccupyNothing) {
  ProfileBuilder builder;
  const TensorId a = builder.persistent(100), b = builder.persistent(0);
  builder.profile.tensors[a.index()].foreign = true;
  builder.op(0, 1, {a, b});
  const Footprint footprint(builder.profile, {}, 4096);
  EXPECT_TRUE(footprint.units(a).empty());
  EXPECT_TRUE(footprint.units(b).empty());
}

}  // namespace
}  // namespace sentinel::plan
