// Every policy by name. A new policy is a file or a folder with a make_ function, and one line
// here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "sentinel/error.h"
#include "sentinel/policy.h"

// X(name, function): the policy's name as users write it, and plan::make_<function>(), which its
// file defines.
#define SENTINEL_POLICIES(X)      \
  X("sentinel", sentinel)         \
  X("auto", auto)                 \
  X("g10", g10)                   \
  X("g10-gds", g10_gds)           \
  X("g10-host", g10_host)         \
  X("deepum", deepum)             \
  X("home", home)                 \
  X("tensile", tensile)           \
  X("first-touch", first_touch)   \
  X("slow-only", slow_only)       \
  X("memory-mode", memory_mode)   \
  X("lru", lru)                   \
  X("ial", ial)                   \
  X("autotm", autotm)             \
  X("vdnn", vdnn)                 \
  X("superneurons", superneurons) \
  X("capuchin", capuchin)         \
  X("swapadvisor", swapadvisor)   \
  X("flashneuron", flashneuron)   \
  X("lms", lms)                   \
  X("ideal", ideal)

namespace sentinel {
namespace plan {

#define SENTINEL_DECLARE(name, function) std::unique_ptr<Policy> make_##function();
SENTINEL_POLICIES(SENTINEL_DECLARE)

}  // namespace plan

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

#define SENTINEL_ENTRY(name, function) Entry{name, plan::make_##function},
constexpr std::array kBuilt{SENTINEL_POLICIES(SENTINEL_ENTRY)};

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
