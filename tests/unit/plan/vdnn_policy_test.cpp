#include <gmock/gmock.h>

#include "contract/policy.h"
#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(Vdnn, PolicyContract, ::testing::Values("vdnn"));

// One layer an op; x and the maps m1, m2, m3 have 10 pages each.
//   op  0 load  1 conv  2 relu  3 conv | 4 conv' 5 relu' 6 conv'
//   x   w       r                                        r
//   m1          w       r                        r
//   m2                  w       r        r
//   m3                          w        r
// Held: 10 20 30 40 | 40 20 10. x (gap 1 to 6, read by a convolution) and m1 (gap 2 to 5, read by
// the relu) can be offloaded; m2 and m3 are needed at once.
Profile small_network() {
  ProfileBuilder b;
  const TensorId x = b.temporary(10 * kPage, 0, 6), m1 = b.temporary(10 * kPage, 1, 5),
                 m2 = b.temporary(10 * kPage, 2, 4), m3 = b.temporary(10 * kPage, 3, 4);
  b.op(0, 100, {}, {x});
  b.op(1, 100, {x}, {m1});
  b.op(2, 100, {m1}, {m2});
  b.op(3, 100, {m2}, {m3});
  b.op(4, 100, {m2, m3});
  b.op(5, 100, {m1});
  b.op(6, 100, {x});
  const char* names[] = {"load",        "conv2d",        "relu",           "conv2d",
                         "conv2d_grad", "relu_backward", "conv2d_backward"};
  for (std::size_t k = 0; k < 7; ++k) {
    b.profile.ops[k].name = names[k];
    b.profile.ops[k].phase = k < 4 ? Phase::forward : Phase::backward;
  }
  return b.profile;
}

struct Said {
  std::uint32_t tensor;
  Direction direction;
  std::uint32_t op, deadline;
  friend bool operator==(const Said&, const Said&) = default;
};

std::vector<Said> vdnn_moves(std::uint64_t pages, std::vector<std::string> without = {}) {
  const Profile profile = small_network();
  const auto policy = make_policy("vdnn");
  const Plan plan = dynamic_cast<PlannedPolicy&>(*policy).plan(
      profile, two_tiers(kPage), {.fast_bytes = pages * kPage, .without = std::move(without)});
  EXPECT_THAT(verify(plan, profile), IsEmpty());
  EXPECT_EQ(plan.fast_bytes, pages * kPage);
  std::vector<Said> all;
  for (const Move& m : plan.moves)
    all.push_back({m.tensor.value, m.direction, m.trigger.value, m.deadline.value});
  return all;
}

TEST(VdnnPolicy, MovesNothingWhereEverythingFits) { EXPECT_THAT(vdnn_moves(40), IsEmpty()); }

// Convolutions' maps are enough for 30 pages: x alone. From layer 4 the search for what to prefetch
// passes layer 5, which is no convolution, and finds x in layer 6; there is room from op 5 on.
TEST(VdnnPolicy, OffloadsInputsOfConvolutionsFirst) {
  EXPECT_THAT(vdnn_moves(30),
              ElementsAre(Said{0, Direction::demote, 1, 2}, Said{0, Direction::promote, 5, 6}));
}

// 20 pages need both. Each op fills the memory, so that the writes are waited for. Layer 4 would
// prefetch m1, and layer 5 x: there is room for both at op 5.
TEST(VdnnPolicy, ThenAllMaps) {
  EXPECT_THAT(vdnn_moves(20),
              ElementsAre(Said{0, Direction::demote, 1, 1}, Said{1, Direction::demote, 2, 2},
                          Said{1, Direction::promote, 5, 5}, Said{0, Direction::promote, 5, 6}));
}

// All maps although 100 pages are there. m1 comes back at op 4, a layer ahead, x at op 5. During op
// 2 x is still held, during op 3 m1: 10 20 30 30 | 30 20 10.
TEST(VdnnPolicy, OffloadsAllWithoutTheChoice) {
  EXPECT_THAT(vdnn_moves(100, {"dynamic"}),
              ElementsAre(Said{0, Direction::demote, 1, 2}, Said{1, Direction::demote, 2, 3},
                          Said{1, Direction::promote, 4, 5}, Said{0, Direction::promote, 5, 6}));
}

TEST(VdnnPolicy, RefusesWhatMapsAloneCannotMakeFit) { EXPECT_THROW(vdnn_moves(19), Error); }

}  // namespace
}  // namespace sentinel::plan
