#include "runtime/step/borders.h"

#include <gmock/gmock.h>

namespace sentinel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::uint64_t kGranule = 4096;

class BordersTest : public ::testing::Test {
 protected:
  TensorId tensor(std::uint64_t offset, std::uint64_t bytes, std::uint32_t born,
                  Pool pool = Pool::long_lived) {
    const TensorId id(profile.tensors.size());
    profile.tensors.push_back({.bytes = bytes, .alloc_op = OpId(born)});
    plan.placements.push_back({id, GroupId(plan.groups.size()), offset});
    plan.groups.push_back({.pool = pool});
    return id;
  }
  std::vector<std::pair<std::uint64_t, std::uint32_t>> soon(TensorId leaving, std::uint32_t from) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> found;
    Borders(profile, plan)
        .for_each_soon(leaving, from, [&](std::uint64_t offset, std::uint32_t op) {
          found.emplace_back(offset, op);
        });
    return found;
  }

  Profile profile;
  Plan plan{.granule_bytes = kGranule};
};

// a ends in b's first granule, b in c's; c begins late.
TEST_F(BordersTest, OfWhatBeginsSoonAfterwards) {
  const auto a = tensor(0, kGranule * 5 / 2, 3), b = tensor(kGranule * 5 / 2, kGranule, 10),
             c = tensor(kGranule * 7 / 2, kGranule, 10 + 2 * Borders::kNear);
  EXPECT_THAT(soon(a, 4), ElementsAre(Pair(2 * kGranule, 10u)));
  EXPECT_THAT(soon(a, 9), ElementsAre(Pair(2 * kGranule, 10u)));
  EXPECT_THAT(soon(a, 10), IsEmpty()) << "b has begun";
  EXPECT_THAT(soon(b, 12), IsEmpty()) << "too late";
  EXPECT_THAT(soon(b, 12 + Borders::kNear), ElementsAre(Pair(kGranule, 10 + 2 * Borders::kNear)));
  EXPECT_THAT(soon(c, 10 + 2 * Borders::kNear), IsEmpty());
}

TEST_F(BordersTest, OfSeveralInOneGranuleTheNextCounts) {
  const auto a = tensor(0, 100, 1);
  tensor(100, 100, 20);
  tensor(200, 100, 8);
  EXPECT_THAT(soon(a, 5), ElementsAre(Pair(0u, 8u)));
  EXPECT_THAT(soon(a, 8), ElementsAre(Pair(0u, 20u)));
}

TEST_F(BordersTest, NotOfTensorsThatHaveTheirGranulesOrNeverLeave) {
  const auto alone = tensor(0, kGranule, 1);
  tensor(kGranule, kGranule, 2);
  EXPECT_THAT(soon(alone, 1), IsEmpty());
  const auto beside = tensor(2 * kGranule, 100, 3);
  tensor(2 * kGranule + 100, 100, 4, Pool::short_lived);
  EXPECT_THAT(soon(beside, 3), IsEmpty());
}

}  // namespace
}  // namespace sentinel
