// What policies ask for that leave tensors in slower tiers and use them in place.
#pragma once

#include <string_view>

#include "sentinel/machine.h"

namespace sentinel::plan {

// Throws Error where the machine has no slower tier that ops can use in place.
void require_in_place(std::string_view policy, const Machine&);

}  // namespace sentinel::plan
