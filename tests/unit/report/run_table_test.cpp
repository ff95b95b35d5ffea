#include "report/run_table.h"

#include <gmock/gmock.h>

#include <sstream>

namespace sentinel {
namespace {

std::string table(const std::vector<RunRow>& rows) {
  std::ostringstream out;
  print_run_table(rows, out);
  return out.str();
}

TEST(RunTable, Aligned) {
  EXPECT_EQ(table({{"plain PyTorch", 312.04, 1ull << 30, "2.3026", {}},
                   {"Sentinel unlimited", 280.5, 1ull << 30, "2.3026", {}},
                   {"Sentinel at 20 %", 291.25, 220ull << 20, "2.3026", 288.0}}),
            "                          step  predicted  peak memory  final loss\n"
            "  ------------------  --------  ---------  -----------  ----------\n"
            "  plain PyTorch       312.0 ms          -     1.00 GiB  2.3026\n"
            "  Sentinel unlimited  280.5 ms          -     1.00 GiB  2.3026\n"
            "  Sentinel at 20 %    291.2 ms   288.0 ms      220 MiB  2.3026\n"
            "  The final losses are equal.\n");
}

TEST(RunTable, DifferentLossesAreSaid) {
  const auto text = table({{"a", 1.0, 1, "0.5", {}}, {"b", 1.0, 1, "0.25", {}}});
  EXPECT_THAT(text, ::testing::HasSubstr("0.25 (differs)"));
  EXPECT_THAT(text, ::testing::HasSubstr("NOT equal"));
}

TEST(RunTable, UnknownFiguresAndNoRows) {
  EXPECT_THAT(table({{"a", {}, {}, "", {}}}), ::testing::HasSubstr("-"));
  EXPECT_EQ(table({}), "");
}

}  // namespace
}  // namespace sentinel
