// A device's way to the slow tier's files, tried before training relies on it.
#pragma once

#include <cstdint>

#include "engine/gpu/device/driver.h"
#include "engine/io/device_files.h"
#include "engine/io/slow_file.h"

namespace sentinel::gpu {

// Has a granule written and read in each file, as training will. Throws Error.
void try_files(Driver&, DeviceFiles&, SlowFile&, std::uint64_t granule);

}  // namespace sentinel::gpu
