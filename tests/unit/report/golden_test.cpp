// Screens as they must look. A screen that differs prints the command that shows the difference
// and the one that accepts it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "report_fixture.h"
#include "unit/places.h"

namespace sentinel {
namespace {

using testing::large_profile;
using testing::rendered;
using testing::small_profile;

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void expect_screen(const std::string& name, const std::string& text) {
  const auto golden =
      std::filesystem::path(test::kProject) / "tests/golden/report" / (name + ".txt");
  if (std::getenv("SENTINEL_ACCEPT")) return write(golden, text);
  if (text == read(golden)) return;
  const auto actual = std::filesystem::temp_directory_path() / ("sentinel-" + name + ".txt");
  write(actual, text);
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  ADD_FAILURE() << "The screen \"" << name << "\" differs.\n  show:   diff -u " << golden.string()
                << " " << actual.string() << "\n  accept: SENTINEL_ACCEPT=1 "
                << std::filesystem::read_symlink("/proc/self/exe").string()
                << " --gtest_filter=" << test->test_suite_name() << "." << test->name();
}

Profile partial_profile() {
  auto profile = small_profile();
  profile.meta.complete = false;
  profile.meta.incomplete_reason = "the program was killed by signal 9 in op 5";
  profile.meta.exact = false;
  profile.meta.sample_error = 0.035;
  profile.tensors[0].sample_stride = 16;
  profile.natural.clear();
  return profile;
}

Profile uncounted_profile() {
  auto profile = small_profile();
  profile.accesses.clear();
  profile.meta.source = "ops";
  profile.meta.window_pages = 0;
  return profile;
}

TEST(Golden, Summary) { expect_screen("summary", rendered(small_profile(), "summary", "text")); }
TEST(Golden, SummaryPartial) {
  expect_screen("summary-partial", rendered(partial_profile(), "summary", "text"));
}
TEST(Golden, SummaryUncounted) {
  expect_screen("summary-uncounted", rendered(uncounted_profile(), "summary", "text"));
}
TEST(Golden, SummaryEmpty) { expect_screen("summary-empty", rendered({}, "summary", "text")); }
TEST(Golden, Heatmap) { expect_screen("heatmap", rendered(small_profile(), "heatmap", "text")); }
TEST(Golden, HeatmapColour) {
  expect_screen("heatmap-colour",
                rendered(small_profile(), "heatmap", "text", {}, {.colour = true}));
}
TEST(Golden, HeatmapFolded) {
  expect_screen("heatmap-folded", rendered(large_profile(500, 90), "heatmap", "text",
                                           {.heatmap_rows = 20}, {.width = 80}));
}
TEST(Golden, Tensors) { expect_screen("tensors", rendered(small_profile(), "tensors", "text")); }
TEST(Golden, Layers) {
  expect_screen("layers",
                rendered(small_profile(), "layers", "text", {.sort = SortKey::first_use}));
}
TEST(Golden, Sharing) { expect_screen("sharing", rendered(small_profile(), "sharing", "text")); }

}  // namespace
}  // namespace sentinel
