#include "plan/plan_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/input.h"
#include "base/output.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {

using nlohmann::json;

template <class Tag>
void to_json(json& j, const Id<Tag>& id) {
  j = id.value;
}

template <class Tag>
void from_json(const json& j, Id<Tag>& id) {
  id.value = j.get<std::uint32_t>();
}

NLOHMANN_JSON_SERIALIZE_ENUM(Pool, {{Pool::short_lived, "short-lived"},
                                    {Pool::long_lived, "long-lived"},
                                    {Pool::persistent, "persistent"},
                                    {Pool::resident, "resident"},
                                    {Pool::mixed, "mixed"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Direction, {{Direction::promote, "promote"},
                                         {Direction::demote, "demote"},
                                         {Direction::discard, "discard"},
                                         {Direction::copy, "copy"},
                                         {Direction::release, "release"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Placement, tensor, group, offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Group, pool, offset, bytes, first_layer, last_layer, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Move, tensor, direction, trigger, deadline, tier, delay_us,
                                   reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recompute, op, before, keep)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InPlace, tensor, op)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Birth, tensor, tier)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(IntervalPoint, layers, exposed_us, reserved_bytes, fits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plan, version, policy, machine, model, profile_path,
                                   profile_signature, fast_bytes, granule_bytes, part_bytes,
                                   region_bytes, reserved_bytes, peak_fast_bytes, interval_layers,
                                   placements, groups, moves, recomputations, streamed_ops,
                                   in_place, births, curve, frame_pool_bytes, smallest_budget,
                                   smallest_unstreamed_budget, paper_bound, effort,
                                   predicted_step_us)

namespace plan {
namespace {

constexpr std::string_view kFormat = "sentinel-plan";
constexpr std::uint32_t kVersion = 3;

constexpr InputKind kPlans{"plans", 1_GiB, "name another file, or make the plan again"};

}  // namespace

std::string plan_to_json(const Plan& plan) {
  json j = plan;
  j["format"] = kFormat;
  return j.dump(1) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& where) {
  try {
    const json j = json::parse(text);
    if (!j.is_object() || j.value("format", "") != kFormat)
      throw Error(fmt::format("{} is not a plan; `sentinel plan` makes one", where));
    if (const auto version = j.value("version", std::uint32_t{0}); version != kVersion)
      throw Error(
          fmt::format("{} is a plan of version {}, this program reads version {}; make it "
                      "again with `sentinel plan`",
                      where, version, kVersion));
    return j.get<Plan>();
  } catch (const json::exception& e) {
    throw Error(fmt::format("{} is not a readable plan: {}", where, e.what()));
  }
}

void write_plan(const std::string& path, const Plan& plan) {
  write_file(path, plan_to_json(plan), fmt::format("cannot write plan {}", path), Readers::owner);
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

}  // namespace plan
}  // namespace sentinel
