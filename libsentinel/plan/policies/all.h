// Every policy, a file each; each file says what its publication does and what is left out here.
#pragma once

#include <memory>

#include "sentinel/policy.h"

namespace sentinel::plan {

std::unique_ptr<Policy> make_home();
std::unique_ptr<Policy> make_sentinel();
std::unique_ptr<Policy> make_superneurons();
std::unique_ptr<Policy> make_swapadvisor();

}  // namespace sentinel::plan
