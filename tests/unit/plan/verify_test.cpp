// Each test breaks a good plan in one way and expects verify() to notice.
#include "plan/check/verify.h"

#include <gmock/gmock.h>

#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Verify : public ::testing::Test {
 protected:
  Verify() {
    const auto policy = make_policy("sentinel");
    plan_ = dynamic_cast<PlannedPolicy&>(*policy).plan(
        profile_, two_tiers(4096), {.fast_bytes = peak_live_bytes(profile_) / 2});
    EXPECT_THAT(verify(plan_, profile_), IsEmpty());
  }
  void expect(const char* complaint) {
    EXPECT_THAT(verify(plan_, profile_), Contains(HasSubstr(complaint)));
  }
  Placement& placement_in(Pool pool) {
    return *std::ranges::find_if(plan_.placements, [&](const Placement& p) {
      return plan_.groups[p.group.index()].pool == pool;
    });
  }

  Profile profile_ = random_training(5);
  Plan plan_;
};

TEST_F(Verify, SmallerBudget) {
  plan_.fast_bytes = plan_.fast_bytes / 2;
  expect("bytes of fast memory");
}

TEST_F(Verify, StreamedThoughItFits) {
  plan_.streamed_ops.push_back(OpId(0));
  expect("op 0 is streamed, though");
}

// What is only born in slow memory need not be held by an op that does not use it.
TEST_F(Verify, StreamedBesideWhatIsBornAway) {
  ProfileBuilder b;
  const TensorId large = b.persistent(64 * 4096), small = b.persistent(4096);
  b.op(0, 100, {small}, {});
  b.op(0, 100, {large}, {});
  Plan plan{.fast_bytes = 32 * 4096, .granule_bytes = 4096, .peak_fast_bytes = 32 * 4096};
  plan.births = {{large, 1}};
  plan.in_place = {{large, OpId(1)}};
  EXPECT_THAT(verify(plan, b.profile), IsEmpty());
  plan.streamed_ops = {OpId(0)};
  EXPECT_THAT(verify(plan, b.profile), Contains(HasSubstr("op 0 is streamed, though")));
}

TEST_F(Verify, UsedInPlaceOnADisk) {
  Machine machine = two_tiers(4096);
  machine.tiers[1].byte_addressable = false;
  EXPECT_THAT(verify(plan_, profile_, machine), IsEmpty());
  // What a promotion brought is used where it lay instead.
  const auto promotion = std::ranges::find(plan_.moves, Direction::promote, &Move::direction);
  ASSERT_NE(promotion, plan_.moves.end());
  const TensorId t = promotion->tensor;
  std::erase_if(plan_.moves,
                [&](const Move& m) { return m.tensor == t && m.direction == Direction::promote; });
  for (std::uint32_t k = 0; k < profile_.ops.size(); ++k) plan_.in_place.push_back({t, OpId(k)});
  EXPECT_THAT(verify(plan_, profile_, machine), Contains(HasSubstr("not byte-addressable")));
  machine.tiers[1].byte_addressable = true;
  EXPECT_THAT(verify(plan_, profile_, machine), IsEmpty());
  machine.tiers.resize(1);
  EXPECT_THAT(verify(plan_, profile_, machine), Contains(HasSubstr("has 1 tiers")));
}

TEST_F(Verify, MissingPromotion) {
  std::erase_if(plan_.moves, [](const Move& m) { return m.direction == Direction::promote; });
  expect("while it is demoted");
}

TEST_F(Verify, MissingDemotion) {
  std::erase_if(plan_.moves, [](const Move& m) { return m.direction == Direction::demote; });
  expect("bytes of fast memory");
}

TEST_F(Verify, PromotionAfterItsUse) {
  for (Move& m : plan_.moves)
    if (m.direction == Direction::promote) m.trigger = OpId(m.deadline.index() + 1);
  std::erase_if(plan_.moves,
                [&](const Move& m) { return m.trigger.index() >= profile_.ops.size(); });
  EXPECT_FALSE(verify(plan_, profile_).empty());
}

TEST_F(Verify, UnknownTensor) {
  plan_.moves[0].tensor = TensorId(1'000'000);
  expect("does not exist");
}

TEST_F(Verify, UnknownOp) {
  plan_.moves[0].trigger = OpId(1'000'000);
  expect("triggered by op 1000000");
}

TEST_F(Verify, ForeignTensor) {
  profile_.tensors[plan_.moves[0].tensor.index()].foreign = true;
  expect("foreign");
}

TEST_F(Verify, MoveOfADeadTensor) {
  Move m = plan_.moves[0];
  m.tensor = placement_in(Pool::short_lived).tensor;
  m.trigger = OpId(profile_.tensors[m.tensor.index()].free_op->index() + 1);
  plan_.moves.push_back(m);
  expect("while it does not exist");
}

TEST_F(Verify, OverlapInTheRegion) {
  const Placement victim = placement_in(Pool::long_lived);
  const Tensor twin = profile_.tensors[victim.tensor.index()];
  profile_.tensors.push_back(twin);
  plan_.placements.push_back({TensorId(profile_.tensors.size() - 1), victim.group, victim.offset});
  expect("overlap while both are alive");
}

TEST_F(Verify, ShortAmongLong) {
  const Placement& there = placement_in(Pool::long_lived);
  Placement& moved = placement_in(Pool::short_lived);
  profile_.tensors[moved.tensor.index()].bytes = 1;
  moved.group = there.group;
  moved.offset = there.offset;
  expect("short- and long-lived");
}

TEST_F(Verify, OutsideItsGroup) {
  placement_in(Pool::long_lived).offset += 1ull << 40;
  expect("outside its group");
}

TEST_F(Verify, OverlappingGroups) {
  plan_.groups[1].offset = plan_.groups[0].offset;
  expect("groups overlap");
}

TEST_F(Verify, WrongTotals) {
  plan_.reserved_bytes += 4096;
  expect("reserved_bytes");
  plan_.reserved_bytes -= 4096;
  plan_.peak_fast_bytes = 4096;
  expect("peak_fast_bytes");
}

}  // namespace
}  // namespace sentinel::plan
