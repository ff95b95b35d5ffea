// cuFile: NVIDIA's library for files that a device reads and writes itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/device_files.h"
#include "sentinel/error.h"

namespace sentinel::gpu {

// NVIDIA's cuFile, loaded now. `within`: runs what it is given in the device's context. The
// descriptors stay the caller's, and open. Throws Error that says what is missing.
std::unique_ptr<DeviceFiles> open_cufile(
    const std::string& library, const std::vector<int>& descriptors,
    std::function<std::int64_t(const std::function<std::int64_t()>&)> within);

// Of errno, or the library's own. And: of a library that is not open, or not any more.
Error file_error(const std::string& attempted, int code);
bool is_closing(int code);

}  // namespace sentinel::gpu
