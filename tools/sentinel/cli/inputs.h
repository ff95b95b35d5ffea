// Readings that several verbs share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "sentinel/machine.h"
#include "sentinel/policy.h"
#include "sentinel/profile.h"

namespace sentinel::cli {

// A share is of the profile's unlimited peak. Unlimited: 0.
std::uint64_t budget_bytes(const Budget&, const Profile&);

// The same of an option's text; the machine's own fast memory where it is empty. Throws UsageError.
std::uint64_t budget_bytes(const std::string& fast, const Profile&, const Machine&);

// One that makes a plan. Throws Error where there is none, or it decides as it goes.
std::unique_ptr<PlannedPolicy> planned_policy(const std::string& name);

// The names given, or every policy there is for "all". Throws Error.
std::vector<std::string> policies_of(const std::vector<std::string>& names);

}  // namespace sentinel::cli
