#include "plan/step/resized.h"

#include <gtest/gtest.h>

namespace sentinel::plan {
namespace {

// One op reads 4 KiB and makes 12 KiB; another names nothing.
Profile step() {
  Profile profile;
  profile.meta.step_us = 240;
  profile.layers = {{.name = "layer"}};
  profile.tensors = {{.name = "in", .bytes = 4096},
                     {.name = "out", .bytes = 12288, .alloc_op = OpId(0), .free_op = OpId(1)}};
  profile.ops = {
      {.name = "makes", .layer = LayerId(0), .us = 80, .in = {TensorId(0)}, .out = {TensorId(1)}},
      {.name = "names nothing", .layer = LayerId(0), .us = 40}};
  profile.accesses = {{.tensor = TensorId(0), .op = OpId(0), .reads = 6},
                      {.tensor = TensorId(1), .op = OpId(0), .reads = 1, .writes = 8}};
  profile.natural = {{.tensor = TensorId(1), .address = 0}};
  return profile;
}

TEST(Resized, CountsGrowWithTheirTensorAndTimesWithWhatAnOpNames) {
  const auto larger = resized(step(), {4096, 28672});
  EXPECT_EQ(larger.tensors[0].bytes, 4096u);
  EXPECT_EQ(larger.tensors[1].bytes, 28672u);
  EXPECT_EQ(larger.tensors[1].free_op, OpId(1));
  EXPECT_EQ(larger.accesses[0].reads, 6u);
  EXPECT_EQ(larger.accesses[1].reads, 2u);    // 2.33
  EXPECT_EQ(larger.accesses[1].writes, 19u);  // 18.67
  EXPECT_DOUBLE_EQ(larger.ops[0].us, 160);    // 32 KiB, and 16 before
  EXPECT_DOUBLE_EQ(larger.ops[1].us, 40);
  EXPECT_DOUBLE_EQ(larger.meta.step_us, 400);
  EXPECT_TRUE(larger.natural.empty());
}

TEST(Resized, OfTheSameSizesItIsTheSame) {
  auto same = step();
  same.natural.clear();
  EXPECT_EQ(resized(step(), {4096, 12288}), same);
}

}  // namespace
}  // namespace sentinel::plan
