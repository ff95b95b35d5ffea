// Every policy by name. A new policy is one file with a make_ function and one line here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "plan/policies/all.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

constexpr std::array kBuilt{
    Entry{"sentinel", plan::make_sentinel},
    Entry{"auto", plan::make_auto},
    Entry{"g10", plan::make_g10},
    Entry{"g10-gds", plan::make_g10_gds},
    Entry{"g10-host", plan::make_g10_host},
    Entry{"deepum", plan::make_deepum},
    Entry{"home", plan::make_home},
    Entry{"tensile", plan::make_tensile},
    Entry{"first-touch", plan::make_first_touch},
    Entry{"slow-only", plan::make_slow_only},
    Entry{"memory-mode", plan::make_memory_mode},
    Entry{"lru", plan::make_lru},
    Entry{"ial", plan::make_ial},
    Entry{"autotm", plan::make_autotm},
    Entry{"vdnn", plan::make_vdnn},
    Entry{"superneurons", plan::make_superneurons},
    Entry{"capuchin", plan::make_capuchin},
    Entry{"swapadvisor", plan::make_swapadvisor},
    Entry{"flashneuron", plan::make_flashneuron},
    Entry{"lms", plan::make_lms},
    Entry{"ideal", plan::make_ideal},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kBuilt.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kBuilt[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> policy_names() { return kNames; }

std::unique_ptr<Policy> make_policy(std::string_view name) {
  for (const Entry& entry : kBuilt)
    if (entry.name == name) return entry.make();
  const std::string known = fmt::format("{}", fmt::join(kNames, ", "));
  throw Error(fmt::format("there is no policy \"{}\"; known are: {}", name, known));
}

}  // namespace sentinel
