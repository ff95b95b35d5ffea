// Reads budgets and policies from options' texts.
#include "cli/inputs.h"

#include <fmt/format.h>

#include "cli/form.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::cli {
namespace {

Budget parsed_budget(const std::string& text) {
  try {
    return parse_budget(text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--fast: {}", error.what()));
  }
}

}  // namespace

std::uint64_t budget_bytes(const Budget& budget, const Profile& profile) {
  if (budget.percent == 0) return budget.bytes;
  return static_cast<std::uint64_t>(static_cast<double>(peak_live_bytes(profile)) * budget.percent /
                                    100);
}

std::uint64_t budget_bytes(const std::string& fast, const Profile& profile,
                           const Machine& machine) {
  if (!fast.empty()) return budget_bytes(parsed_budget(fast), profile);
  const auto own = machine.tiers.front().capacity;
  return own != 0 ? own : peak_live_bytes(profile);
}

std::unique_ptr<PlannedPolicy> planned_policy(const std::string& name) {
  auto policy = make_policy(name);
  auto* planned = dynamic_cast<PlannedPolicy*>(policy.get());
  if (planned == nullptr)
    throw Error(fmt::format(
        "policy {} decides as it goes and makes no plan; `sentinel simulate` shows what it does",
        name));
  policy.release();
  return std::unique_ptr<PlannedPolicy>(planned);
}

std::vector<std::string> policies_of(const std::vector<std::string>& names) {
  std::vector<std::string> policies;
  for (const auto& name : names) {
    if (name == "all") return {policy_names().begin(), policy_names().end()};
    make_policy(name);  // throws if there is none
    policies.push_back(name);
  }
  return policies;
}

}  // namespace sentinel::cli
