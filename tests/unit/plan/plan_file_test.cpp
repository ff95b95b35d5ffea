#include "plan/check/plan_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>

#include "plan/check/explain.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::HasSubstr;

class PlanFile : public ::testing::Test {
 protected:
  PlanFile() {
    const auto policy = make_policy("sentinel");
    plan_ = dynamic_cast<PlannedPolicy&>(*policy).plan(
        profile_, two_tiers(4096), {.fast_bytes = peak_live_bytes(profile_) / 3});
    plan_.profile_signature = 0xfedcba9876543210;  // does not fit a double
  }
  Profile profile_ = random_training(9);
  Plan plan_;
};

TEST_F(PlanFile, ReadsWhatItWrote) {
  plan_.moves[0].direction = Direction::copy;
  const Plan read = plan_from_json(plan_to_json(plan_), "p");
  EXPECT_EQ(read.moves[0].direction, Direction::copy);
  EXPECT_EQ(plan_to_json(read), plan_to_json(plan_));
  EXPECT_EQ(plan_from_json(plan_to_json(plan_), "p").profile_signature, plan_.profile_signature);
}

TEST_F(PlanFile, IsPrivate) {
  const auto path = std::filesystem::temp_directory_path() / "sentinel-plan-file-test.plan";
  write_plan(path, plan_);
  struct stat st;
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(plan_to_json(read_plan(path)), plan_to_json(plan_));
  std::filesystem::remove(path);
}

TEST_F(PlanFile, SaysWhatIsWrong) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      plan_from_json(text, "x.plan");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(complaint(""), HasSubstr("x.plan is not a readable plan"));
  EXPECT_THAT(complaint("[]"), HasSubstr("not a plan"));
  EXPECT_THAT(complaint("{}"), HasSubstr("not a plan"));
  EXPECT_THAT(complaint(R"({"format":"sentinel-plan","version":9})"), HasSubstr("version 9"));
  EXPECT_THAT(complaint(R"({"format":"sentinel-plan","version":3})"),
              HasSubstr("not a readable plan"));
  EXPECT_THAT(complaint(R"({"format":3,"version":3})"), HasSubstr("not a plan"));
  EXPECT_THROW(read_plan("/no/such/plan"), Error);
  EXPECT_THROW(write_plan("/no/such/plan", plan_), Error);
}

TEST_F(PlanFile, SaysWhichFieldIsWrong) {
  std::string text = plan_to_json(plan_);
  const auto complaint = [&](std::string from, const std::string& to) -> std::string {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    try {
      plan_from_json(bad, "x.plan");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("\"fast_bytes\": ", "\"fast_bytes\": -"),
              HasSubstr("fast_bytes is not a whole number from 0 on"));
  EXPECT_THAT(complaint("\"fast_bytes\": ", "\"fast_bytes\": 9223372036854775808, \"x\": "),
              HasSubstr("fast_bytes is more than any memory has"));
  EXPECT_THAT(complaint("\"deadline\": ", "\"deadline\": 4294967296, \"x\": "),
              HasSubstr("moves[0].deadline is not a whole number of 32 bits"));
  EXPECT_THAT(complaint("\"pool\": \"", "\"pool\": \"\\u001b[2J"),
              HasSubstr("groups[0].pool is not one of short-lived"));
  EXPECT_THAT(complaint("\"groups\"", "\"grapes\""), HasSubstr("groups is missing"));
  EXPECT_THAT(complaint("\"groups\"", "groups"), HasSubstr("line "));
  EXPECT_THAT(complaint("\"groups\"", "groups"), ::testing::Not(HasSubstr("parse_error")));
}

TEST_F(PlanFile, ExplanationsSteerNoTerminal) {
  for (auto& t : profile_.tensors) t.name += "\x1b]0;owned\x07";
  for (auto& o : profile_.ops)
    o.name +=
        "\xc2\x9b"
        "31m";
  plan_.model = plan_.machine = plan_.policy = "\x1b[2J";
  for (auto& m : plan_.moves) m.reason = "\x1b[1A";
  for (auto& g : plan_.groups) g.reason = "\u202e";
  const auto text = explain(plan_, profile_) +
                    explain_tensor(plan_, profile_, std::to_string(plan_.moves[0].tensor.value));
  for (const char* bad : {"\x1b", "\x07", "\xc2\x9b", "\u202e"})
    EXPECT_THAT(text, ::testing::Not(HasSubstr(bad)));
}

TEST_F(PlanFile, SurvivesDamage) {
  const std::string good = plan_to_json(plan_);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    for (int n = 0; n < 3; ++n) bad[random() % bad.size()] = static_cast<char>(random());
    if (i % 3 == 0) bad.resize(random() % bad.size());
    try {
      plan_from_json(bad, "bad");
    } catch (const Error&) {
    }
  }
}

TEST_F(PlanFile, RefusesAnotherModel) {
  EXPECT_THROW(check_matches(plan_, profile_), Error);
  profile_.meta.signature = plan_.profile_signature;
  EXPECT_NO_THROW(check_matches(plan_, profile_));
}

TEST_F(PlanFile, Explains) {
  const std::string text = explain(plan_, profile_);
  EXPECT_THAT(text, HasSubstr("plan of policy sentinel"));
  EXPECT_THAT(text, HasSubstr("<- chosen"));
  EXPECT_THAT(text, HasSubstr("what moves most"));
  const std::string mover = std::to_string(plan_.moves[0].tensor.value);
  const std::string one = explain_tensor(plan_, profile_, mover);
  EXPECT_THAT(one, HasSubstr("demoted at the end of"));
  EXPECT_EQ(explain_tensor(plan_, profile_, profile_.tensors[plan_.moves[0].tensor.index()].name),
            one);
  EXPECT_THROW(explain_tensor(plan_, profile_, "nobody"), Error);
}

TEST(Registry, UnknownPoliciesAreRefusedWithTheKnownOnes) {
  try {
    make_policy("magic");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("no policy \"magic\"; known are: sentinel, auto, g10"));
  }
}

}  // namespace
}  // namespace sentinel::plan
