// What is known of recipes, versions, lost tensors and orphans.
#include "runtime/replay/replays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sentinel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Numbers = std::vector<TensorNumber>;

// A step whose ops are named by their recipes' handles.
class ReplaysTest : public testing::Test {
 protected:
  ReplaysTest() { replays_.op_begins(0); }

  void lives(TensorNumber number) { replays_.know(number, number << 20, 1u << 20); }
  // What is not yet known of `written` is made by it.
  bool op(int recipe, const Numbers& read, const Numbers& written) {
    replays_.op_begins(newest_);
    for (const auto number : written) {
      newest_ = std::max(newest_, number);
      lives(number);
    }
    return replays_.note(handle(recipe), "op", read, written) != nullptr;
  }
  void given(TensorNumber number) {
    lives(number);
    newest_ = std::max(newest_, number);
  }
  // An op without a recipe.
  void write(TensorNumber number) {
    replays_.op_begins(newest_);
    replays_.writes(number);
  }
  void lose(TensorNumber number) {
    ASSERT_TRUE(replays_.may_lose(number));
    replays_.lose(number, ContentHash{number, 0});
  }
  static void* handle(int recipe) { return reinterpret_cast<void*>(std::uintptr_t(recipe)); }
  std::vector<int> chain(const Numbers& targets) {
    std::vector<int> handles;
    if (const auto run = replays_.run_for(targets))
      for (const auto& recipe : run->recipes)
        handles.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(recipe->handle)));
    return handles;
  }
  std::vector<int> dropped() {
    std::vector<int> handles;
    for (void* recipe : replays_.take_dropped())
      handles.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(recipe)));
    return handles;
  }
  void remake(const Numbers& targets) {
    auto run = replays_.run_for(targets);
    ASSERT_TRUE(run);
    replays_.begin(*run);
    replays_.end(std::move(*run));
  }

  Replays replays_;
  TensorNumber newest_ = 0;
};

TEST_F(ReplaysTest, ALostTensorsChainIsItsMaker) {
  given(1);
  EXPECT_TRUE(op(10, {1}, {2}));
  lose(2);
  EXPECT_TRUE(replays_.lost(2));
  EXPECT_THAT(chain({2}), ElementsAre(10));
  EXPECT_THAT(replays_.run_for(Numbers{2})->inputs, ElementsAre(1));
  EXPECT_THAT(replays_.lost_in(2u << 20, 4096), ElementsAre(2u));
  EXPECT_THAT(replays_.lost_in((2u << 20) - 4096, 4097), ElementsAre(2u));
  EXPECT_THAT(replays_.lost_in((2u << 20) - 4096, 4096), IsEmpty());
  EXPECT_THAT(replays_.lost_in(3u << 20, 4096), IsEmpty());
  remake({2});
  EXPECT_FALSE(replays_.any_lost());
}

TEST_F(ReplaysTest, WithoutARecipeNothingIsLost) {
  given(1);
  EXPECT_FALSE(replays_.may_lose(1));
  EXPECT_FALSE(replays_.may_lose(7)) << "it is not known";
  op(10, {1}, {2});
  write(2);
  EXPECT_FALSE(replays_.may_lose(2)) << "an op without a recipe wrote it";
}

TEST_F(ReplaysTest, UpdatesInPlaceFollowTheMaker) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {2});
  op(12, {2}, {3});
  lose(2);
  EXPECT_THAT(chain({2}), ElementsAre(10, 11));
  lose(3);
  EXPECT_THAT(chain({3}), ElementsAre(10, 11, 12));
  EXPECT_THAT(chain({2, 3}), ElementsAre(10, 11, 12));
  EXPECT_THAT(replays_.all_lost(), ElementsAre(2, 3));
}

// An update that the recipe does not name among what it read.
TEST_F(ReplaysTest, WhatAnOpUpdatesItAlsoReads) {
  given(1);
  op(10, {1}, {2});
  op(11, {1}, {2});
  lose(2);
  EXPECT_THAT(chain({2}), ElementsAre(10, 11));
}

TEST_F(ReplaysTest, AVersionThatIsOverwrittenComesFromItsMaker) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  op(12, {2}, {2});
  op(13, {2}, {4});
  lose(3);
  EXPECT_THAT(chain({3}), ElementsAre(10, 11));
  // Both versions of 2: the second is read from the replay's memory, not at its address.
  lose(4);
  EXPECT_THAT(chain({3, 4}), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(chain({4}), ElementsAre(13));
}

// As plan::replay_runs() has it.
TEST_F(ReplaysTest, ARunFindsWhatTheOnesBeforeItMade) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  op(12, {3}, {4});
  op(13, {3, 4}, {5});
  op(14, {5}, {6});
  for (TensorNumber number = 2; number <= 6; ++number) lose(number);
  EXPECT_THAT(replays_.in_runs(Numbers{6}), ElementsAre(ElementsAre(6)));
  EXPECT_THAT(replays_.in_runs(Numbers{6, 3}), ElementsAre(ElementsAre(3), ElementsAre(6)));
  EXPECT_THAT(
      replays_.in_runs(Numbers{2, 3, 4, 5, 6}),
      ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(4), ElementsAre(5), ElementsAre(6)));
  // 4 and 5 both need 3, which is not wanted.
  EXPECT_THAT(replays_.in_runs(Numbers{2, 4, 5, 6}),
              ElementsAre(ElementsAre(2), ElementsAre(4, 5), ElementsAre(6)));
  remake({2});
  EXPECT_THAT(chain({4, 5}), ElementsAre(11, 12, 13));
}

TEST_F(ReplaysTest, WhatIsReadMayNotBeWrittenBeforeItsReaderIsRemade) {
  given(1);
  op(10, {1}, {2});
  lose(2);
  const Numbers written{1};
  EXPECT_THAT(replays_.threatened(written), ElementsAre(2));
  remake({2});
  EXPECT_THAT(replays_.threatened(written), IsEmpty());
  write(1);
  EXPECT_FALSE(replays_.may_lose(2)) << "what it was made from is gone";
}

TEST_F(ReplaysTest, AnInputWithARecipeMayBeWritten) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  lose(3);
  EXPECT_THAT(replays_.threatened(Numbers{2}), IsEmpty());
  write(2);
  EXPECT_THAT(chain({3}), ElementsAre(10, 11));
  EXPECT_THAT(replays_.threatened(Numbers{1}), ElementsAre(3));
}

TEST_F(ReplaysTest, WhatAChainReadsBecomesAnOrphan) {
  given(1);
  op(10, {1}, {2});
  lose(2);
  EXPECT_TRUE(replays_.dies(1));
  EXPECT_TRUE(replays_.orphan(1));
  EXPECT_THAT(chain({2}), ElementsAre(10));
  EXPECT_THAT(replays_.take_unneeded(), IsEmpty());
  remake({2});
  EXPECT_THAT(replays_.take_unneeded(), ElementsAre(1u << 20));
  EXPECT_FALSE(replays_.knows(1));
}

TEST_F(ReplaysTest, WhatAChainMakesItselfIsFreed) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  lose(3);
  EXPECT_FALSE(replays_.dies(2));
  EXPECT_THAT(chain({3}), ElementsAre(10, 11));
  EXPECT_TRUE(replays_.dies(1));
  EXPECT_FALSE(replays_.dies(3));
  EXPECT_THAT(replays_.take_unneeded(), ElementsAre(1u << 20));
  EXPECT_THAT(dropped(), testing::UnorderedElementsAre(10, 11));
}

TEST_F(ReplaysTest, WhatARunReadsOrMakesOutlivesIt) {
  given(1);
  op(10, {1}, {2});
  lose(2);
  auto run = replays_.run_for(Numbers{2});
  replays_.begin(*run);
  EXPECT_TRUE(replays_.busy(1));
  EXPECT_TRUE(replays_.busy(2));
  EXPECT_TRUE(replays_.dies(2));
  EXPECT_TRUE(replays_.dies(1));
  EXPECT_THAT(replays_.take_unneeded(), IsEmpty());
  EXPECT_THAT(dropped(), IsEmpty());
  replays_.end(std::move(*run));
  EXPECT_EQ(replays_.take_unneeded().size(), 2u);
  EXPECT_THAT(dropped(), ElementsAre(10));
}

TEST_F(ReplaysTest, WhileARunIsOnNothingIsLost) {
  given(1);
  op(10, {1}, {2});
  op(11, {1}, {3});
  lose(2);
  auto run = replays_.run_for(Numbers{2});
  replays_.begin(*run);
  EXPECT_FALSE(replays_.may_lose(3));
  replays_.end(std::move(*run));
  EXPECT_TRUE(replays_.may_lose(3));
}

TEST_F(ReplaysTest, AnotherChainMayReadWhatIsLost) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  lose(3);
  lose(2);
  EXPECT_THAT(chain({3}), ElementsAre(10, 11));
  remake({2});
  EXPECT_THAT(chain({3}), ElementsAre(11));
}

TEST_F(ReplaysTest, ALongChainIsCut) {
  given(1);
  op(1, {1}, {2});
  for (std::size_t i = 1; i < Replays::kMostRecipes; ++i) op(1 + int(i), {2}, {2});
  EXPECT_TRUE(replays_.may_lose(2));
  op(1000, {2}, {2});
  EXPECT_FALSE(replays_.may_lose(2));
}

TEST_F(ReplaysTest, ALossThatWouldCutAnotherChainIsNone) {
  given(1);
  op(1, {1}, {2});
  for (std::size_t i = 1; i < Replays::kMostRecipes; ++i) op(1 + int(i), {2}, {2});
  op(100, {2}, {3});
  lose(3);
  EXPECT_THAT(chain({3}), ElementsAre(100));
  EXPECT_FALSE(replays_.may_lose(2)) << "the chain of 3 would be one too long";
  EXPECT_TRUE(replays_.dies(2)) << "so it stays";
}

TEST_F(ReplaysTest, ARunningMeanOfAnEarlierStepConstrainsNothing) {
  given(1);
  given(2);
  replays_.forget(2);
  lives(1);
  lives(2);
  op(10, {1}, {2, 3});  // updates 2, and makes 3
  lose(3);
  EXPECT_THAT(chain({3}), ElementsAre(10));
  EXPECT_FALSE(replays_.may_lose(2)) << "its own update would start from the wrong contents";
  EXPECT_TRUE(replays_.dies(2)) << "it is read all the same";
}

TEST_F(ReplaysTest, WhatAlsoServesForAnotherOutputHasToBeAsItWas) {
  given(1);
  given(2);
  replays_.forget(2);
  lives(1);
  lives(2);
  op(10, {1, 2}, {2, 3});
  EXPECT_FALSE(replays_.may_lose(3));
}

TEST_F(ReplaysTest, ARecipeOfUnknownTensorsIsDropped) {
  given(1);
  EXPECT_FALSE(op(10, {1, 0}, {2}));
  EXPECT_FALSE(replays_.may_lose(2));
  EXPECT_THAT(dropped(), ElementsAre(10));
}

// It wrote all the same.
TEST_F(ReplaysTest, ADroppedRecipesOpHasWritten) {
  given(1);
  op(10, {1}, {2});
  op(11, {0}, {2});
  EXPECT_FALSE(replays_.may_lose(2));
}

TEST_F(ReplaysTest, AnOpWritesATensorOnce) {
  given(1);
  op(10, {1}, {2});
  replays_.op_begins(newest_);
  replays_.writes(2);
  replays_.writes(2);
  EXPECT_TRUE(replays_.note(handle(11), "op", Numbers{2}, Numbers{2}));
  replays_.writes(2);
  lose(2);
  EXPECT_THAT(chain({2}), ElementsAre(10, 11));
}

TEST_F(ReplaysTest, AnOverwrittenTensorIsLostNoMore) {
  given(1);
  op(10, {1}, {2});
  op(11, {2}, {3});
  lose(2);
  lose(3);
  replays_.op_begins(newest_);
  replays_.writes(2);
  replays_.overwritten(2);
  EXPECT_FALSE(replays_.lost(2));
  EXPECT_THAT(chain({3}), ElementsAre(10, 11));
  EXPECT_FALSE(replays_.may_lose(2));
}

TEST_F(ReplaysTest, AStepsEndDropsAll) {
  given(1);
  op(1, {1}, {2});
  for (int i = 2; i <= 100'000; ++i) op(i, {2}, {2});  // one chain, which goes without recursion
  replays_.forget(newest_);
  EXPECT_EQ(dropped().size(), 100'000u);
  EXPECT_FALSE(replays_.knows(1));
}

}  // namespace
}  // namespace sentinel
