// Every policy, a file each; each file says what its publication does and what is left out here.
#pragma once

#include <memory>

#include "sentinel/policy.h"






namespace sentinel::plan {

std::unique_ptr<Policy> make_auto();
std::unique_ptr<Policy> make_capuchin();
std::unique_ptr<Policy> make_deepum();
std::unique_ptr<Policy> make_flashneuron();
std::unique_ptr<Policy> make_g10();
std::unique_ptr<Policy> make_g10_gds();
std::unique_ptr<Policy> make_g10_host();
std::unique_ptr<Policy> make_ideal();
std::unique_ptr<Policy> make_lms();
std::unique_ptr<Policy> make_lru();
std::unique_ptr<Policy> make_memory_mode();
std::unique_ptr<Policy> make_sentinel();
std::unique_ptr<Policy> make_tensile();
std::unique_ptr<Policy> make_vdnn();

}  // namespace sentinel::plan
