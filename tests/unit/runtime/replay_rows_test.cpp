// The words at the end about what plans have made again.
#include "runtime/limit/replay_rows.h"

#include <gmock/gmock.h>

#include "base/units.h"

namespace sentinel {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ReplayRow row(std::size_t plan, bool given_up, std::uint64_t bytes) {
  return {
      .plan = plan,
      .given_up = given_up,
      .before = {.op = 9, .name = "backward"},
      .replays = {{.op = 1, .name = "relu"}},
      .tensors = {{.tensor = 3, .name = "t", .bytes = bytes, .maker = {.op = 1, .name = "relu"}}},
      .us = 10,
      .move_us = 100};
}

TEST(ReplayRows, TheWordsAreOfAPlanThatWasKept) {
  EXPECT_THAT(in_words(std::vector<ReplayRow>{}), IsEmpty());
  const std::vector rows = {row(1, true, 7_MiB), row(0, false, 3_MiB), row(0, true, 5_MiB)};
  const auto words = in_words(rows).front();
  EXPECT_THAT(words, HasSubstr("a step makes 1 tensor of 3.00 MiB again"));
  EXPECT_THAT(words, Not(HasSubstr("given up")));
}

TEST(ReplayRows, ElseOfOneThatWasGivenUp) {
  const std::vector rows = {row(0, true, 5_MiB), row(0, true, 2_MiB), row(1, true, 9_MiB)};
  EXPECT_THAT(in_words(rows).front(),
              HasSubstr("a step of the plan that was given up made 2 tensors of 7.00 MiB again"));
}

}  // namespace
}  // namespace sentinel
