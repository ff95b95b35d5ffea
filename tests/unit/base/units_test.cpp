#include "base/units.h"

#include <gmock/gmock.h>

#include "sentinel/error.h"

namespace sentinel {
namespace {

TEST(ParseBytes, BinaryMultiples) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("512M"), 512_MiB);
  EXPECT_EQ(parse_bytes("1.5GiB"), 1536_MiB);
  EXPECT_EQ(parse_bytes("2kb"), 2_KiB);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* bad : {"", "M", "-1", "1X", "nan", "inf", "1e30G", "12 apples", "1MiBx"})
    EXPECT_THROW(parse_bytes(bad), Error) << bad;
}

TEST(ParseBudget, ShareOrSize) {
  EXPECT_DOUBLE_EQ(parse_budget("20%").percent, 20);
  EXPECT_EQ(parse_budget("1G").bytes, 1_GiB);
  for (const char* bad : {"0%", "101%", "%", "-5%", "20%%", "0"})
    EXPECT_THROW(parse_budget(bad), Error) << bad;
}

TEST(PrintBytes, ThreeSignificantDigits) {
  EXPECT_EQ(print_bytes(0), "0 B");
  EXPECT_EQ(print_bytes(1023), "1023 B");
  EXPECT_EQ(print_bytes(1_MiB), "1.00 MiB");
  EXPECT_EQ(print_bytes(1023_MiB), "1.00 GiB");
  EXPECT_EQ(print_bytes(221_MiB), "221 MiB");
}

}  // namespace
}  // namespace sentinel
