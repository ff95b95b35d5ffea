// Every policy, a file each; each file says what its publication does and what is left out here.
#pragma once

#include <memory>
#include <string_view>

#include "sentinel/policy.h"



namespace sentinel::plan {

std::unique_ptr<Policy> make_auto();
std::unique_ptr<Policy> make_autotm();
std::unique_ptr<Policy> make_capuchin();
std::unique_ptr<Policy> make_deepum();
std::unique_ptr<Policy> make_first_touch();
std::unique_ptr<Policy> make_flashneuron();
std::unique_ptr<Policy> make_g10();
std::unique_ptr<Policy> make_g10_gds();
std::unique_ptr<Policy> make_g10_host();
std::unique_ptr<Policy> make_home();
std::unique_ptr<Policy> make_ial();
std::unique_ptr<Policy> make_ideal();
std::unique_ptr<Policy> make_lms();
std::unique_ptr<Policy> make_lru();
std::unique_ptr<Policy> make_memory_mode();
std::unique_ptr<Policy> make_sentinel();
std::unique_ptr<Policy> make_slow_only();
std::unique_ptr<Policy> make_superneurons();
std::unique_ptr<Policy> make_swapadvisor();
std::unique_ptr<Policy> make_tensile();
std::unique_ptr<Policy> make_vdnn();

// Throws Error where the machine has no slower tier that ops can use in place.
void require_in_place(std::string_view policy, const Machine&);

}  // namespace sentinel::plan
