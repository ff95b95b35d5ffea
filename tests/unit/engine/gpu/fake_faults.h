// The fake device's page faults in managed memory: what is told to lie on the host is not to be
// touched, and whoever does it all the same is noted and gets the page. Only while somebody
// watches.
#pragma once

#include <cstdint>

namespace fake {

void managed(std::uintptr_t begin, std::uint64_t bytes);                // there is such memory
void moved(std::uintptr_t begin, std::uint64_t bytes, bool to_device);  // a part of it

}  // namespace fake
