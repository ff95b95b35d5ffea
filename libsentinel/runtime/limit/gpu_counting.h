// Who counts a GPU's accesses page by page: the patched kernel, where the device follows the
// process's page tables, or CUPTI, of managed memory. Unless one of them is asked for, op inputs
// and outputs are taken for accesses.
#pragma once

#include <cstdint>
#include <string>

#include "options/options.h"

namespace sentinel::gpu {

// Pages. A driver asks for up to 2 MiB at once, and asks again until it has all of them: a window
// that lets go of the first before the last has come would never end.
constexpr std::uint32_t kLeastWindow = 1024;

// In names of sources: "hmm", "ats"; empty where pageable memory cannot be used.
const char* name_of(Pageable);

// Whether the options, of a GPU, name a source.
bool counted(const SessionOptions&);

// Why the kernel cannot count this device's accesses; empty where it can.
std::string why_not_kernel(Driver&);
// The same of CUPTI, and what to do. A program may load a CUPTI of its own that is not here yet.
std::string why_not_cupti(Driver&, const SessionOptions&);

// Throws Error where the source that the options name cannot be had. `driver`: opened if null and
// needed.
void require_source(const SessionOptions&, Driver* driver);

}  // namespace sentinel::gpu
