// Anonymous address ranges: reserved once, populated later. Every function throws Error or
// succeeds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sentinel {

// Reserves `bytes` of private anonymous address space aligned to `alignment`, advised for huge
// pages, with no memory behind it yet.
std::uintptr_t reserve_anonymous(std::size_t bytes, std::size_t alignment);

// Maps `fd` shared at a free, aligned place.
std::uintptr_t map_shared(int fd, std::size_t bytes, std::size_t alignment);

// A sealed-off memory file of the given size, without memory behind it yet; close-on-exec.
int create_memory_file(const char* name, std::size_t bytes);

}  // namespace sentinel
