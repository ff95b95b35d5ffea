#include "sentinel/analysis.h"

#include <gmock/gmock.h>

#include "sample_profile.h"

namespace sentinel {
namespace {

using testing::ElementsAre;

// Pages of the sample: weight 3, input 1 (foreign), linear 1, relu 2, grad 3, scratch 2.
constexpr std::uint64_t page = 4096;

TEST(PageRound, UpToWholePages) {
  EXPECT_EQ(page_round(0), 0u);
  EXPECT_EQ(page_round(1), 4096u);
  EXPECT_EQ(page_round(4096), 4096u);
  EXPECT_EQ(page_round(4097, 8192), 8192u);
}

TEST(Lifetimes, FromAllocationsAndFrees) {
  const auto lives = lifetimes(sample_profile());
  EXPECT_TRUE(lives[0].persistent);
  EXPECT_EQ(lives[0].last_op, OpId(3));
  EXPECT_FALSE(lives[0].short_lived());
  EXPECT_FALSE(lives[1].persistent);
  EXPECT_EQ(lives[1].last_op, OpId(0));
  EXPECT_TRUE(lives[2].short_lived());
  EXPECT_EQ(lives[3].first_layer, LayerId(0));
  EXPECT_EQ(lives[3].last_layer, LayerId(1));
  EXPECT_EQ(lives[3].layers(), 2u);
}

TEST(Uses, NamedOrOpened) {
  const auto used = uses(sample_profile());
  EXPECT_THAT(used[0], ElementsAre(OpId(0), OpId(3)));
  EXPECT_THAT(used[2], ElementsAre(OpId(0), OpId(1)));
  EXPECT_THAT(used[5], ElementsAre(OpId(3)));  // opened, never named
}

TEST(Counts, OpeningsPerPage) {
  const auto count = counts(sample_profile());
  EXPECT_EQ(count[0].reads, 3u);
  EXPECT_EQ(count[0].writes, 3u);
  EXPECT_DOUBLE_EQ(count[0].hotness, 2);
  EXPECT_DOUBLE_EQ(count[5].hotness, 2);
  EXPECT_DOUBLE_EQ(count[3].hotness, 0);  // others were counted: this one was not touched
}

TEST(Counts, WithoutCountsOnePerNamingOp) {
  Profile profile = sample_profile();
  profile.accesses.clear();
  const auto count = counts(profile);
  EXPECT_EQ(count[0].reads, 1u);
  EXPECT_EQ(count[0].writes, 1u);  // in place by sgd: once, as a write
  EXPECT_DOUBLE_EQ(count[0].hotness, 2);
  EXPECT_DOUBLE_EQ(count[5].hotness, 0);
}

TEST(LiveBytes, PersistentIncludedForeignNot) {
  const Profile profile = sample_profile();
  EXPECT_THAT(live_bytes(profile), ElementsAre(4 * page, 6 * page, 8 * page, 8 * page));
  EXPECT_EQ(peak_live_bytes(profile), 8 * page);
}

TEST(WorkingSet, OperandsAndWhatIsAllocatedWithin) {
  EXPECT_THAT(working_set_bytes(sample_profile()),
              ElementsAre(4 * page, 3 * page, 5 * page, 8 * page));
}

TEST(IdealTime, SumOfOps) { EXPECT_DOUBLE_EQ(ideal_us(sample_profile()), 19.5); }

TEST(Analysis, EmptyProfile) {
  const Profile empty;
  EXPECT_TRUE(live_bytes(empty).empty());
  EXPECT_EQ(peak_live_bytes(empty), 0u);
  Profile no_ops;
  no_ops.tensors.resize(1);
  EXPECT_EQ(lifetimes(no_ops)[0].layers(), 1u);
  EXPECT_EQ(peak_live_bytes(no_ops), 0u);
}

}  // namespace
}  // namespace sentinel
