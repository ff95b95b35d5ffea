#include <gmock/gmock.h>

#include <set>

#include "plan/policies/deepum/block_table.h"
#include "plan/seam/victims.h"
#include "sentinel/error.h"
#include "sentinel/paging.h"

namespace sentinel::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

BlockId b(std::uint32_t i) { return BlockId(std::size_t{i}); }

std::vector<std::uint32_t> successors(const BlockTable& table, std::uint32_t block) {
  std::vector<std::uint32_t> list;
  table.successors(b(block), [&](BlockId next) { list.push_back(next.value); });
  return list;
}

void run(BlockTable& table, std::initializer_list<std::uint32_t> faults) {
  std::optional<BlockId> last;
  for (std::uint32_t f : faults) {
    table.record(b(f), last);
    last = b(f);
  }
}

TEST(BlockTable, RecordsSuccessorsWithStartAndEnd) {
  BlockTable table;
  run(table, {5, 3, 9});
  EXPECT_EQ(table.start(), b(5));
  EXPECT_EQ(table.end(), b(9));
  EXPECT_THAT(successors(table, 5), ElementsAre(3));
  EXPECT_THAT(successors(table, 3), ElementsAre(9));
  EXPECT_THAT(successors(table, 9), IsEmpty());
  EXPECT_FALSE(table.overflowed());
}

TEST(BlockTable, KeepsTheFourMostRecentSuccessors) {
  BlockTable table;
  for (std::uint32_t next : {10, 11, 12, 13, 14}) run(table, {1, next});
  EXPECT_THAT(successors(table, 1), ElementsAre(14, 13, 12, 11));
  run(table, {1, 12});
  EXPECT_THAT(successors(table, 1), ElementsAre(12, 14, 13, 11));
}

// Most of 1, 2, 3 was prefetched: what faults does not take the chain apart.
TEST(BlockTable, LaterFaultsJoinTheChain) {
  BlockTable table;
  run(table, {1, 2, 3});
  run(table, {2});
  EXPECT_EQ(table.start(), b(1));
  EXPECT_EQ(table.end(), b(3));
  run(table, {7, 8});  // new: before the start
  EXPECT_EQ(table.start(), b(7));
  EXPECT_THAT(successors(table, 7), ElementsAre(8, 1));
  EXPECT_EQ(table.end(), b(3));
  run(table, {3, 4});  // new: behind the end
  EXPECT_EQ(table.end(), b(4));
}

// Blocks 2048 apart share a row of two ways; the third replaces the one not used for longest.
TEST(BlockTable, RowsOfTwoWaysConflict) {
  BlockTable table;
  run(table, {0, 2048});
  EXPECT_FALSE(table.overflowed());
  run(table, {0});
  run(table, {4096});
  EXPECT_TRUE(table.overflowed());
  EXPECT_TRUE(table.holds(b(0)));
  EXPECT_FALSE(table.holds(b(2048)));
  EXPECT_TRUE(table.holds(b(4096)));
}

TEST(BlockTable, HoldsTwiceItsRowsInSequence) {
  BlockTable table;
  for (std::uint32_t i = 0; i < 2 * BlockTable::kRows; ++i) table.record(b(i), std::nullopt);
  EXPECT_FALSE(table.overflowed());
  for (std::uint32_t i = 0; i < 2 * BlockTable::kRows; ++i) ASSERT_TRUE(table.holds(b(i))) << i;
}

TEST(ExecutionTable, PredictsByTheThreeBefore) {
  ExecutionTable table;
  table.record({7, 9, 92, 0}, 75);  // the paper's Figure 6
  table.record({89, 53, 24, 1}, 10);
  table.record({34, 52, 22, 1}, 99);
  EXPECT_EQ(table.predict({7, 9, 92, 0}), 75u);
  EXPECT_EQ(table.predict({34, 52, 22, 1}), 99u);
  EXPECT_EQ(table.predict({7, 9, 92, 1}), std::nullopt);
  EXPECT_EQ(table.bytes(), 3 * 16u);
}

TEST(Victims, OldestThatNothingHolds) {
  Victims v;
  for (std::uint32_t i : {0, 1, 2, 3}) v.arrive(b(i));
  v.renew(b(0));
  v.hold(b(1));
  v.use(b(2));
  EXPECT_EQ(v.take(), b(3));
  v.leave(b(0));
  EXPECT_EQ(v.take(), std::nullopt);
  v.release(b(1));
  v.end_use();
  EXPECT_EQ(v.take(), b(1));
  EXPECT_EQ(v.take(), b(2));
  EXPECT_EQ(v.take(), std::nullopt);
}

TEST(Victims, WhatIsUsedGoesInOrderOfUse) {
  Victims v;
  for (std::uint32_t i : {4, 5, 6}) v.use(b(i));
  v.arrive(b(6));
  v.arrive(b(5));
  EXPECT_EQ(v.take(), std::nullopt);
  EXPECT_EQ(v.take_used(), b(5));
  EXPECT_EQ(v.take_used(), b(6));
  v.arrive(b(4));
  EXPECT_EQ(v.take_used(), b(4));
  EXPECT_EQ(v.take_used(), std::nullopt);
}

// What the test says is present.
struct Present final : BlockView {
  std::set<std::uint32_t> blocks;
  bool present(BlockId id) const override { return blocks.contains(id.value); }
};

class DeepUmPagerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Pager> pager(PlanOptions options) {
    const auto policy = make_policy("deepum");
    return dynamic_cast<PagedPolicy&>(*policy).prepare({}, options);
  }
  // Kernel k names 10 k and 10 k + 1; all that is neither present nor expected faults.
  std::size_t kernel(Pager& p, std::uint32_t k) {
    std::size_t faults = 0;
    p.kernel_start(100 + k);
    for (std::uint32_t block : {10 * k, 10 * k + 1}) {
      p.touched(b(block));
      if (present_.blocks.contains(block) || p.expected(b(block))) continue;
      ++faults;
      p.faulted(b(block));
    }
    return faults;
  }
  std::vector<std::uint32_t> commands(Pager& p) {
    std::vector<std::uint32_t> list;
    while (const auto next = p.prefetch(present_)) list.push_back(next->value);
    return list;
  }
  Present present_;
};

// Kernels 1 2 3 in a circle. Three kernels before and the running one have to be known before the
// next is predicted: from the second time round on. Then one fault on kernel 1 starts a chain.
TEST_F(DeepUmPagerTest, ChainsFromAFaultThroughTheNextKernels) {
  const auto p = pager({.look_ahead = 2});
  for (const std::size_t faults : {2, 1})  // then 10 k + 1 is known to follow 10 k
    for (std::uint32_t k : {1, 2, 3}) {
      EXPECT_EQ(kernel(*p, k), faults);
      p->kernel_end();
    }
  EXPECT_EQ(kernel(*p, 1), 1u);  // 10 faults, 11 is its successor
  EXPECT_TRUE(p->expected(b(11)));
  EXPECT_THAT(commands(*p), ElementsAre(10, 11, 20, 21, 30, 31));
  p->kernel_end();
  present_.blocks = {10, 11, 20, 21, 30};
  EXPECT_EQ(kernel(*p, 2), 0u);          // predicted
  EXPECT_THAT(commands(*p), IsEmpty());  // kernel 1 comes next but one: its blocks are there
  p->kernel_end();
  present_.blocks = {};
  EXPECT_EQ(kernel(*p, 3), 0u);
  EXPECT_THAT(commands(*p), ElementsAre(20, 21));
}

TEST_F(DeepUmPagerTest, EvictsLeastRecentlyMigratedUnlessPredicted) {
  const auto p = pager({.look_ahead = 1});
  for (std::uint32_t k : {1, 2, 3, 1, 2, 3}) {
    kernel(*p, k);
    p->kernel_end();
  }
  for (std::uint32_t block : {20, 21, 10, 11, 30, 31}) p->arrived(b(block));
  kernel(*p, 1);  // names 10, 11; 2 is predicted: 20, 21
  EXPECT_EQ(p->victim(false), b(30));
  EXPECT_EQ(p->victim(false), b(31));
  EXPECT_EQ(p->victim(false), std::nullopt);
  EXPECT_EQ(p->victim(true), b(20));  // a fault waits: predicted ones go too
  EXPECT_EQ(p->victim(true), b(21));
  EXPECT_EQ(p->victim(true), b(10));  // and then what the kernel itself names
}

TEST_F(DeepUmPagerTest, FeaturesAndTables) {
  EXPECT_TRUE(pager({})->pre_evicts());
  EXPECT_TRUE(pager({})->invalidates());
  EXPECT_FALSE(pager({.without = {"pre-eviction"}})->pre_evicts());
  EXPECT_FALSE(pager({.without = {"invalidation"}})->invalidates());
  EXPECT_THROW(pager({.without = {"chaining"}}), Error);
  const auto p = pager({});
  kernel(*p, 1);
  p->kernel_end();
  kernel(*p, 2);
  EXPECT_EQ(p->table_bytes(), 2 * BlockTable::kBytes + 16);
  EXPECT_EQ(p->conflict_misses(), 0u);
}

// Shapes that differ in each step: the tables do not grow with the training, and what comes then is
// learnt as ever.
TEST_F(DeepUmPagerTest, KernelsThatNeverComeBackAreForgotten) {
  const auto p = pager({.look_ahead = 2});
  std::uint64_t most = 0;
  for (std::uint32_t k = 0; k < 100'000; ++k) {
    p->kernel_start(std::uint64_t{1} << 40 | k);
    p->kernel_end();
    most = std::max(most, p->table_bytes());
  }
  EXPECT_LT(p->table_bytes(), most);
  for (std::uint32_t k : {1, 2, 3, 1, 2, 3, 1}) {
    kernel(*p, k);
    p->kernel_end();
  }
  EXPECT_EQ(kernel(*p, 2), 0u);
}

}  // namespace
}  // namespace sentinel::plan
