#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace sentinel {
namespace {

TEST(Checked, SumsDoNotWrap) {
  EXPECT_EQ(checked_sum(1, 2), 3u);
  EXPECT_EQ(checked_sum(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_FALSE(checked_sum(UINT64_MAX, 1));
  EXPECT_FALSE(checked_sum(std::uint64_t{1} << 63, std::uint64_t{1} << 63));
  EXPECT_EQ(saturated_sum(UINT64_MAX - 1, 7), UINT64_MAX);
}

TEST(Checked, RangesLieWithin) {
  EXPECT_TRUE((ByteRange{0, 8}.within(8)));
  EXPECT_TRUE((ByteRange{8, 0}.within(8)));
  EXPECT_FALSE((ByteRange{1, 8}.within(8)));
  EXPECT_FALSE((ByteRange{UINT64_MAX - 3, 8}.within(8)));
  EXPECT_TRUE((ByteRange{4, 4}.within(ByteRange{4, 4})));
  EXPECT_FALSE((ByteRange{3, 4}.within(ByteRange{4, 8})));
  EXPECT_FALSE((ByteRange{UINT64_MAX - 7, 16}.within(ByteRange{4, 8})));
}

TEST(Saturated, FitsWhateverTheFigure) {
  EXPECT_EQ(saturated(3.9), 3u);
  EXPECT_EQ(saturated(-1), 0u);
  EXPECT_EQ(saturated(std::numeric_limits<double>::quiet_NaN()), 0u);
  EXPECT_EQ(saturated(0x1p63), 1ull << 63);
  EXPECT_EQ(saturated(1e300), UINT64_MAX);
  EXPECT_EQ(saturated(std::numeric_limits<double>::infinity()), UINT64_MAX);
}

}  // namespace
}  // namespace sentinel
