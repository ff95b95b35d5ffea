// Tensors that share a granule: it leaves when the last of them does, so a plan that needs its room
// moves them all.
#include <gmock/gmock.h>

#include <algorithm>

#include "plan/check/verify.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;

constexpr std::uint64_t kPage = 4096, kBudget = 10 * kPage;

// A layer an op. Three tensors of 1 KiB, written at op 0 and read at op 5, and one of ten pages in
// between: with ten pages all three have to be away then.
Profile small_ones_beside_a_large_one() {
  ProfileBuilder b;
  const TensorId small[] = {b.temporary(1024, 0, 5), b.temporary(1024, 0, 5),
                            b.temporary(1024, 0, 5)};
  const TensorId large = b.temporary(10 * kPage, 2, 3);
  b.op(0, 100, {}, {small[0], small[1], small[2]});
  b.op(1, 100, {});
  b.op(2, 100, {}, {large});
  b.op(3, 100, {large});
  b.op(4, 100, {});
  b.op(5, 100, {small[0], small[1], small[2]});
  return b.profile;
}

class Groups : public ::testing::Test {
 protected:
  const Profile profile = small_ones_beside_a_large_one();
  Plan plan = dynamic_cast<PlannedPolicy&>(*make_policy("sentinel"))
                  .plan(profile, two_tiers(kPage), {.fast_bytes = kBudget, .pool_frames = 0});
};

TEST_F(Groups, LieInOnePageAndMoveWhole) {
  const auto page_of = [&](std::size_t tensor) { return plan.placements[tensor].offset / kPage; };
  EXPECT_EQ(page_of(0), page_of(1));
  EXPECT_EQ(page_of(0), page_of(2));
  for (const auto direction : {Direction::demote, Direction::promote}) {
    std::vector<std::uint32_t> tensors;
    for (const auto& move : plan.moves)
      if (move.direction == direction) tensors.push_back(move.tensor.value);
    EXPECT_THAT(tensors, ::testing::UnorderedElementsAre(0, 1, 2));
  }
  EXPECT_THAT(verify(plan, profile), ::testing::IsEmpty());
}

TEST_F(Groups, ThePageOfOneThatStaysIsStillHeld) {
  std::erase_if(plan.moves, [](const Move& move) { return move.tensor == TensorId(1); });
  EXPECT_THAT(verify(plan, profile), ::testing::Contains(::testing::HasSubstr("holds")));
}

}  // namespace
}  // namespace sentinel::plan
