// The published traces, where they are at hand: figures as their README gives them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "sample_profile.h"
#include "sentinel/analysis.h"
#include "trace/read_any.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"
#include "unit/places.h"

namespace sentinel {
namespace {

struct Published {
  const char* file;
  std::size_t ops, tensors, globals, workspaces;
  double total_ms, peak_gib, largest_op_gib, global_gib;
};

constexpr Published published[] = {
    {"BERT_Base-256.jsonl.gz", 1369, 1463, 156, 0, 7285, 47.8, 2.25, 16.6},
    {"BERT_Base-256-warm.jsonl.gz", 1369, 1463, 156, 0, 3383, 47.8, 2.25, 16.6},
    {"ResNet152-1280.jsonl.gz", 1299, 3330, 622, 427, 112589, 273.5, 15.3, 0.23},
    {"ResNet152-1280-warm.jsonl.gz", 1299, 3330, 622, 427, 7890, 273.5, 15.3, 0.23}};

std::string traces_folder() {
  const char* set = std::getenv("SENTINEL_TRACES");
  return set != nullptr ? set : test::kTraces;
}

class PublishedTrace : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    path_ = traces_folder() + "/" + GetParam().file;
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << path_ << " is not there; set SENTINEL_TRACES to the traces' folder";
  }
  std::string path_;
};

constexpr double gib = 1u << 30;

std::size_t tensors_of(const Profile& profile, TensorKind kind) {
  return std::ranges::count(profile.tensors, kind, &Tensor::kind);
}

TEST_P(PublishedTrace, FiguresOfItsReadme) {
  const Published& expected = GetParam();
  const Profile profile = read_any(path_);
  EXPECT_EQ(profile.ops.size(), expected.ops);
  EXPECT_EQ(profile.tensors.size(), expected.tensors);
  EXPECT_EQ(tensors_of(profile, TensorKind::global), expected.globals);
  EXPECT_EQ(tensors_of(profile, TensorKind::workspace), expected.workspaces);
  EXPECT_NEAR(ideal_us(profile) / 1e3, expected.total_ms, 0.51);
  EXPECT_NEAR(peak_live_bytes(profile) / gib, expected.peak_gib, 0.05);
  EXPECT_NEAR(std::ranges::max(working_set_bytes(profile)) / gib, expected.largest_op_gib, 0.05);
  std::uint64_t global = 0;
  for (const Tensor& tensor : profile.tensors)
    if (tensor.kind == TensorKind::global) global += tensor.bytes;
  EXPECT_NEAR(global / gib, expected.global_gib, 0.005 + 0.01 * expected.global_gib);
}

TEST_P(PublishedTrace, RoundTrips) {
  const TestFolder folder;
  const Profile profile = read_any(path_);
  write_tensor_trace(profile, folder / "t.jsonl.gz");
  EXPECT_EQ(read_any(folder / "t.jsonl.gz"), profile);
  write_profile(folder / "p", profile);
  EXPECT_EQ(read_any(folder / "p"), profile);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTrace, testing::ValuesIn(published), [](const auto& test) {
  std::string name = test.param.file;
  name.resize(name.find('.'));
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace sentinel
