// Writes plans as JSON, and reads and checks them.
#include "plan/check/plan_file.h"

#include <fmt/format.h>

#include "base/input.h"
#include "base/output.h"
#include "base/units.h"
#include "plan/check/verify.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// Reading takes up to some 14 bytes of memory for each byte of a file of mere numbers.
constexpr InputKind kPlans{"plans", 64_MiB, "name another file, or plan a shorter step"};

}  // namespace

void write_plan(const std::string& path, const Plan& plan) {
  const auto attempt = fmt::format("cannot write plan {}", path);
  const auto text = plan_to_json(plan);
  if (text.size() > kPlans.bytes)  // nobody could read it
    throw Error(fmt::format("{}: it would have {}, and plans have at most {}; plan a shorter step",
                            attempt, print_bytes(text.size()), print_bytes(kPlans.bytes)));
  write_file(path, text, attempt, Readers::owner);
}

Plan read_plan(const std::string& path) {
  return plan_from_json(read_input(path, fmt::format("cannot read plan {}", path), kPlans), path);
}

void check_matches(const Plan& plan, const Profile& profile) {
  if (plan.profile_signature == profile.meta.signature) return;
  throw Error(fmt::format(
      "the plan was made for {} with step signature {:016x}, the profile is of {} with {:016x}: "
      "make a new one with `sentinel plan`",
      plan.model.empty() ? "a model" : plan.model, plan.profile_signature,
      profile.meta.model.empty() ? "a model" : profile.meta.model, profile.meta.signature));
}

void check_sound(const Plan& plan, const Profile& profile, const std::string& file) {
  check_matches(plan, profile);
  if (const auto wrong = verify(plan, profile); !wrong.empty())
    throw Error(fmt::format(
        "{} is damaged ({} objections), for one: {}; make it again with `sentinel plan`", file,
        wrong.size(), wrong.front()));
}

}  // namespace sentinel::plan
