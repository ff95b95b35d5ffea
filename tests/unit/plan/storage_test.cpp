// What crosses the step's end: left behind by one step, freed by the next.
#include "plan/step/storage.h"

#include <gtest/gtest.h>

namespace sentinel::plan {
namespace {

Tensor left(std::uint64_t bytes, std::uint32_t freed) {
  return {.bytes = bytes, .free_op = OpId(freed)};
}
Tensor made(std::uint64_t bytes, std::uint32_t op) {
  return {.bytes = bytes, .alloc_op = OpId(op)};
}

Profile step(std::vector<Tensor> tensors) {
  Profile profile;
  for (int op = 0; op < 8; ++op) profile.ops.push_back({.name = "op", .us = 1});
  profile.layers.push_back({"layer", Phase::forward});
  profile.tensors = std::move(tensors);
  return profile;
}

TEST(LeftBehind, IsPairedBySizeInOrderOfBirth) {
  const auto pairs = left_behind(step({left(100, 5),
                                       left(200, 1),
                                       left(100, 2),
                                       made(200, 6),
                                       made(100, 4),
                                       made(100, 7),
                                       {.bytes = 100},
                                       made(300, 1)}));
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].before, TensorId(0));
  EXPECT_EQ(pairs[0].now, TensorId(4));
  EXPECT_TRUE(pairs[0].beside) << "made at op 4, and the one before is freed at op 5";
  EXPECT_EQ(pairs[1].now, TensorId(3));
  EXPECT_FALSE(pairs[1].beside);
  EXPECT_EQ(pairs[2].now, TensorId(5));
  EXPECT_FALSE(pairs[2].beside);
}

TEST(Storages, WhatIsGoneBeforeItIsMadeAgainIsOneStorage) {
  const auto all = storages(step({left(100, 2), made(100, 4)}));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].tensor, TensorId(1));
  EXPECT_EQ(all[0].carried, TensorId(0));
  EXPECT_EQ(all[0].last, 8u + 2);
}

TEST(Storages, WhatExistsBesideTheNextIsTwo) {
  const auto all = storages(step({left(100, 4), made(100, 4)}));
  ASSERT_EQ(all.size(), 2u);
  for (const auto& storage : all) EXPECT_FALSE(storage.carried || storage.persistent);
  EXPECT_EQ(all[0].uses, std::vector<std::uint32_t>{0}) << "nobody reads it again";
  EXPECT_EQ(all[1].uses, (std::vector<std::uint32_t>{4, 7})) << "at both ends, for nobody names it";
}

TEST(Storages, WhatTheNextStepReadsIsThereAtItsEnd) {
  auto profile = step({left(100, 4), made(100, 4)});
  profile.ops[3].in = {TensorId(0)};
  profile.ops[5].in = {TensorId(1)};
  const auto all = storages(profile);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].uses, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(all[1].uses, (std::vector<std::uint32_t>{4, 5, 7}));
}

}  // namespace
}  // namespace sentinel::plan
