#include "report/view/difference.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "report_fixture.h"

namespace sentinel {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::small_profile;

Difference between(const Profile& before, const Profile& after) {
  return Difference(StepView(before), StepView(after));
}

const DifferenceRow* find(const std::vector<DifferenceRow>& rows, const std::string& name) {
  for (const auto& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

std::string text_of(const Difference& difference, std::size_t rows = 20) {
  std::ostringstream out;
  difference_text({.difference = difference,
                   .before = "a.sentinel",
                   .after = "b\x1b[2J.sentinel",
                   .rows = rows,
                   .style = {.width = 100}},
                  out);
  return out.str();
}

TEST(Difference, OfAStepAndItselfIsNone) {
  const auto p = small_profile();
  const auto difference = between(p, p);
  EXPECT_TRUE(difference.same_step);
  EXPECT_THAT(difference.verdict, HasSubstr("the same step"));
  EXPECT_THAT(difference.facts, IsEmpty());
  EXPECT_THAT(difference.tensors, IsEmpty());
  for (const auto& figure : difference.figures) EXPECT_EQ(print_change(figure), "") << figure.label;
}

TEST(Difference, TimesAloneMakeNoOtherStep) {
  auto later = small_profile();
  for (auto& op : later.ops) op.us *= 2;
  later.meta.step_us *= 2;
  const auto difference = between(small_profile(), later);
  EXPECT_TRUE(difference.same_step);
  EXPECT_EQ(print_change(difference.figures.front()), "+100.0 %");
  EXPECT_EQ(difference.ops.front().name, "linear_backward");  // of the largest change
  EXPECT_EQ(difference.ops.front().value.by(), 4100);
}

TEST(Difference, TensorsThatAreNewGoneOrOfAnotherSize) {
  auto later = small_profile();
  later.tensors[0].bytes *= 2;
  later.tensors[1].name = "fc2.other";
  const auto difference = between(small_profile(), later);
  EXPECT_FALSE(difference.same_step);
  EXPECT_EQ(difference.verdict,
            "The steps differ: of the tensors 1 are new, 1 are gone, 1 have another size.");
  ASSERT_EQ(difference.tensors.size(), 3u);
  EXPECT_EQ(difference.tensors.front().name, "fc1.weight");
  EXPECT_EQ(print_change(Unit::bytes, difference.tensors.front().value), "+100.0 %");
  EXPECT_EQ(print_change(Unit::bytes, find(difference.tensors, "fc2.other")->value), "new");
  EXPECT_EQ(print_change(Unit::bytes, find(difference.tensors, "fc2.weight")->value), "gone");
}

TEST(Difference, OpsByTheirNamesAndPhases) {
  auto later = small_profile();
  later.ops[1].name = "gelu";
  const auto difference = between(small_profile(), later);
  EXPECT_FALSE(difference.same_step);
  EXPECT_EQ(find(difference.ops, "linear")->other.after, 2);  // calls
  EXPECT_FALSE(find(difference.ops, "gelu")->value.before);
  EXPECT_FALSE(find(difference.ops, "relu")->value.after);
  EXPECT_THAT(difference.verdict, HasSubstr("of the kinds of op 1 are new, 1 are gone"));
}

// fc2 is a layer of the forward pass and one of the backward pass.
TEST(Difference, LayersOfOneNameArePairedInTheirOrder) {
  auto later = small_profile();
  later.ops[3].us += 7;  // in the second fc2
  const auto difference = between(small_profile(), later);
  EXPECT_EQ(difference.layers.front().name, "fc2");
  EXPECT_EQ(difference.layers.front().detail, "backward");
  EXPECT_EQ(difference.layers.front().value.by(), 7);
  EXPECT_EQ(difference.layers[1].value.by(), 0);
}

TEST(Difference, FactsThatDiffer) {
  auto later = small_profile();
  later.meta.model = "other";
  const auto difference = between(small_profile(), later);
  ASSERT_EQ(difference.facts.size(), 1u);
  EXPECT_EQ(difference.facts[0].label, "model");
  EXPECT_THAT(difference.facts[0].before, HasSubstr("tiny-mlp"));
  EXPECT_THAT(difference.facts[0].after, HasSubstr("other"));
}

TEST(Difference, TheTextHasAsManyRowsAsAskedForAndSteersNoTerminal) {
  auto later = small_profile();
  for (auto& tensor : later.tensors) tensor.bytes += 4096;
  later.tensors[2].name = "evil\x1b]0;x\x07";
  const auto difference = between(small_profile(), later);
  const auto text = text_of(difference, 2);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr(fmt::format("… and {} more", difference.tensors.size() - 2)));
  EXPECT_THAT(text_of(difference, 0), Not(HasSubstr("more\n")));
  std::istringstream lines(text_of(difference, 0));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Difference, JsonHoldsWhatTheTextSays) {
  auto later = small_profile();
  later.tensors[0].bytes *= 2;
  const auto difference = between(small_profile(), later);
  std::ostringstream out;
  difference_json({.difference = difference, .before = "a", .after = "b", .style = {}}, out);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["same_step"], false);
  EXPECT_EQ(json["tensors"][0]["bytes"]["before"], 1 << 20);
  EXPECT_EQ(json["tensors"][0]["bytes"]["after"], 2 << 20);
  EXPECT_EQ(json["ops"].size(), difference.ops.size());
  EXPECT_EQ(json["figures"][0]["label"], "step");
}

TEST(Difference, CountsAndUsesAreNotCompared) {
  auto uncounted = small_profile();
  uncounted.accesses.clear();
  uncounted.meta.source = "ops";
  uncounted.tensors[0].bytes *= 2;
  const auto difference = between(small_profile(), uncounted);
  EXPECT_FALSE(difference.comparable);
  for (const auto& figure : difference.figures) {
    EXPECT_NE(std::string(figure.label), "page accesses");
    EXPECT_NE(std::string(figure.label), "uses by ops");
  }
  EXPECT_FALSE(difference.tensors.front().other.before);
  const auto text = text_of(difference);
  EXPECT_THAT(text, HasSubstr("only one of the two profiles has counted them"));
  EXPECT_THAT(text, Not(HasSubstr("uses")));
  std::ostringstream page;
  difference_html({.difference = difference, .before = "a", .after = "b", .style = {}}, page);
  EXPECT_THAT(page.str(), HasSubstr("\"comparable\":false"));
  EXPECT_EQ(between(uncounted, uncounted).note(), "");
}

TEST(Difference, OfStepsWithoutAnything) {
  const Profile none;
  const auto difference = between(none, small_profile());
  EXPECT_FALSE(difference.same_step);
  EXPECT_THAT(text_of(difference), HasSubstr("new"));
  EXPECT_TRUE(between(none, none).same_step);
}

TEST(Difference, ThePageHoldsNamesAsDataOnly) {
  auto later = small_profile();
  later.tensors[0].name = "</script><b>";
  const auto difference = between(small_profile(), later);
  std::ostringstream out;
  difference_html({.difference = difference, .before = "a", .after = "b", .style = {}}, out);
  EXPECT_THAT(out.str(), Not(HasSubstr("</script><b>")));
  EXPECT_THAT(out.str(), HasSubstr("\\u003c/script"));
}

}  // namespace
}  // namespace sentinel
