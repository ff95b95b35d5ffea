// Every policy, a file each; each file says what its publication does and what is left out here.
#pragma once

#include <memory>

#include "sentinel/policy.h"

namespace sentinel::plan {

std::unique_ptr<Policy> make_sentinel();
std::unique_ptr<Policy> make_first_touch();
std::unique_ptr<Policy> make_slow_only();
std::unique_ptr<Policy> make_ial();
std::unique_ptr<Policy> make_autotm();

// Throws Error where the machine has no slower tier that ops can use in place.
void require_in_place(std::string_view policy, const Machine&);

}  // namespace sentinel::plan
