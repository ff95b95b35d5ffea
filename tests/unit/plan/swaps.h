// For tests of policies that swap: small profiles in one line, a machine with host and SSD, and a
// plan's moves as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sentinel/policy.h"
#include "unit/plan/profiles.h"

namespace sentinel::testing {

// A page takes 2 us to or from the host and 10 us to or from the SSD.
inline Machine host_and_ssd() {
  const double host = 4096 / 2e-6, ssd = 4096 / 10e-6;
  return {.name = "test",
          .tiers = {{.name = "fast", .read_bw = 100e9, .write_bw = 100e9, .byte_addressable = true},
                    {.name = "host", .capacity = 1_GiB},
                    {.name = "ssd", .read_bw = ssd, .write_bw = ssd}},
          .links = {{.name = "gpu", .bw = host, .tiers = {"fast"}}},
          .fault_us = 10,
          .fault_batch_bytes = 4096,
          .granule_bytes = 4096};
}

// One op a pair of inputs and outputs, a layer each.
inline void in_order(ProfileBuilder& b,
                     std::vector<std::pair<std::vector<TensorId>, std::vector<TensorId>>> ops,
                     double us = 100) {
  for (auto& [in, out] : ops)
    b.op(static_cast<std::uint32_t>(b.profile.ops.size()), us, std::move(in), std::move(out));
}

inline Plan plan_of(std::string_view policy, const Profile& profile, const Machine& machine,
                    const PlanOptions& options) {
  const auto made = make_policy(policy);
  return dynamic_cast<PlannedPolicy&>(*made).plan(profile, machine, options);
}

// "3 in 0 by 5": tensor 0 is fetched at op 3 for op 5; "0 out 0 to 2": put out after op 0, to tier
// 2; "0 drop 1": discarded; "0 copy 1": copied ahead from op 0 on.
inline std::vector<std::string> swaps(const Plan& plan) {
  std::vector<std::string> text;
  for (const Move& m : plan.moves) switch (m.direction) {
      case Direction::promote:
        text.push_back(
            fmt::format("{} in {} by {}", m.trigger.value, m.tensor.value, m.deadline.value));
        break;
      case Direction::demote:
        text.push_back(fmt::format("{} out {} to {}", m.trigger.value, m.tensor.value, m.tier));
        break;
      case Direction::release:
        text.push_back(fmt::format("{} gives up {}", m.trigger.value, m.tensor.value));
        break;
      case Direction::discard:
        text.push_back(fmt::format("{} drop {}", m.trigger.value, m.tensor.value));
        break;
      case Direction::copy:
        text.push_back(fmt::format("{} copy {}", m.trigger.value, m.tensor.value));
    }
  return text;
}

}  // namespace sentinel::testing
