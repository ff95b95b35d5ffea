// The real driver behind the seam of device/driver.h.
#pragma once

#include <memory>
#include <string>

#include "engine/gpu/device/driver.h"

namespace sentinel::gpu {

// The driver of this machine, loaded now. Throws Error that says what is missing.
std::unique_ptr<Driver> open_driver(int device, const std::string& library = "libcuda.so.1");

}  // namespace sentinel::gpu
