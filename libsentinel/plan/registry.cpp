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
    Entry{"home", plan::make_home},
    Entry{"superneurons", plan::make_superneurons},
    Entry{"swapadvisor", plan::make_swapadvisor},
};

// Names that the command line promises and that no code stands behind yet.
constexpr std::array<std::string_view, 17> kPromised{
    "g10",       "g10-gds",     "g10-host", "deepum", "tensile", "first-touch",
    "slow-only", "memory-mode", "lru",      "ial",    "autotm",  "vdnn",
    "capuchin",  "flashneuron", "lms",      "ideal",  "auto"};

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
  if (std::find(kPromised.begin(), kPromised.end(), name) != kPromised.end())
    throw Error(fmt::format("policy \"{}\" is not built yet; these are: {}", name, known));
  throw Error(fmt::format("there is no policy \"{}\"; known are: {}", name, known));
}

}  // namespace sentinel
