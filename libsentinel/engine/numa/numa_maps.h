// Where the bytes of an address range lie, by the kernel's own account (/proc/PID/numa_maps). It
// walks the page tables: not for every day.
#pragma once

#include <cstdint>
#include <istream>
#include <map>

namespace sentinel {

using NodeBytes = std::map<int, std::uint64_t>;  // by node

NodeBytes bytes_by_node(std::istream& numa_maps, std::uintptr_t begin, std::uintptr_t end);
NodeBytes bytes_by_node(std::uintptr_t begin, std::uintptr_t end);  // of this process

}  // namespace sentinel
