// A plan file with any number anywhere is refused, or leads nowhere outside of its region.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "plan/check/explain.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "plan/step/parts.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<json> kExtremes = {
    0,
    1,
    std::uint64_t{1} << 31,
    std::uint64_t{1} << 32,
    std::uint64_t{1} << 53,
    (std::uint64_t{1} << 63) - 1,
    std::uint64_t{1} << 63,
    UINT64_MAX - (2 << 20) + 1,
    UINT64_MAX - (8 << 20) + 1,
    UINT64_MAX,
    -1,
    std::numeric_limits<std::int64_t>::min(),
    0.5,
    1e308,
    -1e308,
    nullptr,
    "text",
    json::array(),
};

class PlanNumbers : public ::testing::TestWithParam<const char*> {
 protected:
  PlanNumbers() {
    const auto policy = make_policy(GetParam());
    plan_ = dynamic_cast<PlannedPolicy&>(*policy).plan(
        profile_, two_tiers(4096), {.fast_bytes = peak_live_bytes(profile_) / 2});
    EXPECT_THAT(verify(plan_, profile_), IsEmpty());
  }

  // Where the plan passes, in numbers that cannot wrap.
  void expect_harmless(const json& j, const std::string& changed) {
    Plan plan;
    try {
      plan = plan_from_json(j.dump(), "p");
    } catch (const Error&) {
      return;
    }
    const bool passes = verify(plan, profile_).empty();
    verify(plan, profile_, two_tiers(4096));
    if (!passes) return;
    using Wide = unsigned __int128;
    const Profile profile = in_parts(profile_, plan.part_bytes);
    for (const Group& g : plan.groups)
      EXPECT_LE(Wide{g.offset} + g.bytes, plan.region_bytes) << changed;
    for (const Placement& p : plan.placements) {
      const Group& g = plan.groups.at(p.group.index());
      const Tensor& t = profile.tensors.at(p.tensor.index());
      if (t.bytes == 0) continue;
      EXPECT_GE(p.offset, g.offset) << changed;
      EXPECT_LE(Wide{p.offset} + t.bytes, Wide{g.offset} + g.bytes) << changed;
    }
    EXPECT_LE(plan.region_bytes, std::uint64_t{1} << 60) << changed;
    explain(plan, profile);
  }

  // Every number of the plan; of a list the first and the last item.
  std::vector<std::string> numbers(const json& j, const std::string& at = "") const {
    if (j.is_number()) return {at};
    std::vector<std::string> all;
    const auto add = [&](const json& part, const std::string& key) {
      for (auto& found : numbers(part, at + "/" + key)) all.push_back(std::move(found));
    };
    if (j.is_object())
      for (const auto& [key, value] : j.items()) add(value, key);
    if (j.is_array() && !j.empty()) add(j.front(), "0");
    if (j.is_array() && j.size() > 1) add(j.back(), std::to_string(j.size() - 1));
    return all;
  }

  Profile profile_ = random_training(5);
  Plan plan_;
};

TEST_P(PlanNumbers, OneIsExtreme) {
  const json good = json::parse(plan_to_json(plan_));
  expect_harmless(good, "nothing");
  for (const auto& at : numbers(good))
    for (const json& extreme : kExtremes) {
      json bad = good;
      bad[json::json_pointer(at)] = extreme;
      expect_harmless(bad, at + " = " + extreme.dump());
    }
}

// Where a sum wraps, two numbers make it: of the last group, and of one in which nothing lies.
TEST_P(PlanNumbers, TwoOfAGroupAreExtreme) {
  const json good = json::parse(plan_to_json(plan_));
  std::vector<json> sizes(kExtremes.begin(), kExtremes.begin() + 10);
  sizes.push_back(8 << 20);
  const json empty = {{"pool", "resident"}, {"offset", 0},     {"bytes", 0},
                      {"first_layer", 0},   {"last_layer", 0}, {"reason", ""}};
  const json regions[] = {good["region_bytes"], std::uint64_t{1} << 60, UINT64_MAX};
  for (const json& offset : sizes)
    for (const json& bytes : sizes)
      for (const json& region : regions)
        for (const bool another : {false, true}) {
          json bad = good;
          if (another || bad["groups"].empty()) bad["groups"].push_back(empty);
          bad["groups"].back()["offset"] = offset;
          bad["groups"].back()["bytes"] = bytes;
          bad["region_bytes"] = region;
          expect_harmless(bad, offset.dump() + " " + bytes.dump() + " " + region.dump());
        }
}

INSTANTIATE_TEST_SUITE_P(Policies, PlanNumbers, ::testing::Values("sentinel", "g10", "capuchin"));

class WrappingPlan : public ::testing::Test {
 protected:
  WrappingPlan() {
    tensor_ = b_.temporary(4096, 0, 0).index();
    b_.op(0, 100, {}, {TensorId(tensor_)});
    plan_ = {.fast_bytes = 1 << 20, .granule_bytes = 4096, .region_bytes = 1 << 20};
  }
  ProfileBuilder b_;
  std::size_t tensor_ = 0;
  Plan plan_;
};

// The group ends, in 64 bits, where the region begins: a training followed it out of its memory.
TEST_F(WrappingPlan, IsRefused) {
  plan_.groups = {{.pool = Pool::short_lived, .offset = 0, .bytes = 4096}};
  plan_.reserved_bytes = plan_.peak_fast_bytes = 4096;
  plan_.placements = {{TensorId(tensor_), GroupId(0), 0}};
  EXPECT_THAT(verify(plan_, b_.profile), IsEmpty());
  plan_.groups.push_back(
      {.pool = Pool::resident, .offset = UINT64_MAX - (8 << 20) + 1, .bytes = 8 << 20});
  EXPECT_THAT(verify(plan_, b_.profile), Contains(HasSubstr("the region has")));
}

TEST_F(WrappingPlan, PartsAreFew) {
  plan_.part_bytes = 1;
  b_.profile.tensors[tensor_].bytes = std::uint64_t{1} << 48;
  EXPECT_THAT(verify(plan_, b_.profile), Not(IsEmpty()));
  EXPECT_THROW(in_parts(b_.profile, 1), Error);
  EXPECT_NO_THROW(in_parts(b_.profile, std::uint64_t{1} << 40));
}

}  // namespace
}  // namespace sentinel::plan
